"""Settings of the shop as the screenshots show it: hosts with names."""

from __future__ import annotations

import socket
import sys

from distlock import process
from example_project.settings import *  # noqa: F403 - as settings are derived

HOST = "web-1" if "gunicorn" in sys.argv[0] else "worker-1"

socket.gethostname = lambda: HOST  # of the server's children, too
process.this = process.Process()
