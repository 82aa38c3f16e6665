"""The ASGI application, for uvicorn, daphne or hypercorn."""

from __future__ import annotations

import os

from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")

# The example serves its two static files itself; a real site leaves that to its web server.
application = ASGIStaticFilesHandler(get_asgi_application())
