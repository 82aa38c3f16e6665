"""The settings of a small site behind uvicorn."""

from __future__ import annotations

import json
import os

SECRET_KEY = "tests"
USE_TZ = True
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["distlock"]
MIDDLEWARE = ["tests.asgi.views.notes_cancellations", "distlock.middleware.DistlockMiddleware"]
ROOT_URLCONF = "tests.asgi.views"
DISTLOCK = json.loads(os.environ["ASGI_DISTLOCK"])
