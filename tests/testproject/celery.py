"""The Celery app of the workers that the tests start; ``CELERY_CONFIG`` is JSON."""

from __future__ import annotations

import json
import os

from celery import Celery

from distlock.session import patience
from tests.kit.helpers import ANSWER_SECONDS

# As in the tests' own process: a server that a busy machine holds up is not away.
patience.ANSWER_SECONDS = ANSWER_SECONDS

app = Celery(
    "testproject",
    config_source=json.loads(os.environ["CELERY_CONFIG"]),
    include=["tests.testproject.tasks", "tests.testproject.locked_tasks"],
)
