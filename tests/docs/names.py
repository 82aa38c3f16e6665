"""What the examples of each page take as given: the reader's own functions, models and settings."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import MagicMock

from prometheus_client import CollectorRegistry

from distlock import zk_lock
from example_project.shop.models import Product

Names = dict[str, Any]

#: The reader's own functions, by page: whatever they are asked, they do.
FUNCTIONS = {
    "README.md": "charge",
    "docs/discussion/promises.md": "collect publish",
    "docs/how-to/celery.md": "busy_tasks",
    "docs/how-to/celery-beat.md": "send_reminders",
    "docs/how-to/kazoo.md": "show print_label",
    "docs/how-to/leases.md": "write export",
    "docs/how-to/lost-locks.md": "prepare charge ship payment order build publish paused",
    "docs/how-to/read-write-locks.md": "show load replace publish outdated",
    "docs/how-to/revocation.md": "save_progress build build_urgent_report",
    "docs/how-to/semaphores.md": "charge order",
}

#: Values of the reader's, by page.
VALUES: dict[str, Names] = {
    "README.md": {"sku": "lamp"},
    "docs/discussion/fairness.md": {"zk_lock": zk_lock},
    "docs/discussion/postgresql.md": {
        "DATABASES": {"default": {"ENGINE": "django.db.backends.postgresql"}},
    },
    "docs/how-to/choose-a-lock.md": {"shop": "a:b", "number": 1, "title": "<b>"},
    "docs/how-to/fencing.md": {"sku": "lamp"},
    "docs/how-to/leases.md": {"task_id": "4f0c"},
    "docs/how-to/lost-locks.md": {"sku": "lamp"},
    "docs/how-to/metrics.md": {"registry": CollectorRegistry()},
    "docs/how-to/revocation.md": {"pages": lambda: range(3)},
    "docs/how-to/semaphores.md": {"import_and_release": lambda lock: lock.release()},
    "docs/reference/checks.md": {"MIDDLEWARE": []},
    "docs/how-to/several-locks.md": {"basket": ["lamp", "table", "lamp"], "Stock": Product},
}


def given(page: str) -> Names:
    """Return the names that the page takes as given."""
    functions = {name: MagicMock(name=name) for name in FUNCTIONS.get(page, "").split()}
    # Models that a page defines are of the app `shop`; tasks of two pages have two names.
    name = {"__name__": f"example_project.shop.{re.sub(r'[^a-z]', '_', page)}"}
    return name | functions | VALUES.get(page, {})
