"""The WSGI application that gunicorn serves."""

from __future__ import annotations

import os

from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")

# The example serves its two static files itself; a real site leaves that to its web server.
application = StaticFilesHandler(get_wsgi_application())
