"""gunicorn's settings for the shop; how many workers, and where, stands on the command line."""

from __future__ import annotations

worker_class = "gthread"
wsgi_app = "example_project.wsgi"
graceful_timeout = 3
# Newer versions open a socket in the home folder to be steered by; the demo needs none.
control_socket_disable = True
