"""The example for another task queue comes again, and runs when a permit is free."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from huey.storage import MemoryStorage

from distlock import zk_semaphore
from tests.docs.names import Names
from tests.docs.running import run_page

PAGE = "docs/how-to/celery.md"


@pytest.mark.parametrize("page", [PAGE])
def test_a_task_of_huey_comes_again_until_it_gets_a_permit(page: str, names: Names) -> None:
    run_page(page, names)
    huey: Any = names["huey"]
    huey.storage = MemoryStorage("shop")
    result = names["report"](7)
    permits = zk_semaphore("customer:7", 3)
    assert permits.acquire(timeout=0, leases=3)
    huey.execute(huey.dequeue())
    permits.release(3)
    now = datetime.now(timezone.utc).replace(tzinfo=None)  # as Huey keeps it
    assert not huey.read_schedule(now)
    later = now + timedelta(seconds=1)
    (again,) = huey.read_schedule(later)
    assert again.id == result.id
    huey.execute(again, later)
    assert not huey.scheduled()
