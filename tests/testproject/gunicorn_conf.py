"""Four workers of four threads on a free port of loopback."""

from __future__ import annotations

bind = "127.0.0.1:0"
workers = 4
threads = 4
graceful_timeout = 3
# Newer versions open a socket in the home folder to be steered by; older ones ignore this line.
control_socket_disable = True
