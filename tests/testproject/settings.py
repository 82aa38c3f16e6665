"""Settings of the processes that the tests start; the environment names the real servers.

``TESTPROJECT`` is JSON with ``DATABASES`` and ``DISTLOCK``.
"""

from __future__ import annotations

import json
import os
from typing import Any

from tests.settings import Databases
from tests.testproject import templates

given: dict[str, Any] = json.loads(os.environ["TESTPROJECT"])
DATABASES = Databases(given["DATABASES"])
DISTLOCK = given["DISTLOCK"]
DEBUG = DISTLOCK["default"].get("HOSTS") == "embedded"
TEMPLATES = templates.TEMPLATES
SECRET_KEY = "testproject"
USE_TZ = True
ALLOWED_HOSTS = ["127.0.0.1", "testserver"]
INSTALLED_APPS = ["distlock", "tests.testproject"]
MIDDLEWARE = ["distlock.middleware.DistlockMiddleware"]
ROOT_URLCONF = "tests.testproject.urls"
WSGI_APPLICATION = "tests.testproject.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
