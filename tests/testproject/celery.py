"""The Celery app of the workers that the tests start; ``CELERY_CONFIG`` is JSON."""

from __future__ import annotations

import json
import os

from celery import Celery

app = Celery(
    "testproject",
    config_source=json.loads(os.environ["CELERY_CONFIG"]),
    include=["tests.testproject.tasks", "tests.testproject.locked_tasks"],
)
