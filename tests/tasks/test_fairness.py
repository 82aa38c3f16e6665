"""Tasks that are put off get ahead of those that have just come."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, states

from distlock import zk_locked
from distlock.celery.put_off import HEADER
from tests.kit.celery_tools import PATIENCE
from tests.kit.helpers import eventually
from tests.kit.tools import Owner
from tests.tasks.tools import Traced
from tests.testproject.elsewhere import held_elsewhere, in_line

pytestmark = pytest.mark.usefixtures("distlock_settings")


@pytest.fixture
def refresh(app: Celery) -> Any:
    @app.task(shared=False)
    @zk_locked("feed:<feed_id>", busy_deadline=None)
    def refresh(feed_id: int) -> None: ...

    return refresh


def test_one_that_has_waited_for_long_stands_in_line_and_one_that_comes_does_not(
    refresh: Any,
) -> None:
    with Owner() as old, Owner() as young:
        with held_elsewhere("feed:7"):
            record = {"busy": 20, "away": 0, "since": 1}
            old_run = old.submit(Traced, refresh, 7, headers={HEADER: record})
            eventually(lambda: in_line("feed:7") == 2, PATIENCE, "the old one in line")
            assert young.now(Traced, refresh, 7).state == states.RETRY
        assert old_run.result(PATIENCE).state == states.SUCCESS


def test_a_timeout_of_the_sites_own_is_kept(app: Celery) -> None:
    @app.task(shared=False)
    @zk_locked("feed", timeout=PATIENCE)
    def refresh() -> None: ...

    with Owner() as owner:
        with held_elsewhere("feed"):
            run = owner.submit(Traced, refresh)
            eventually(lambda: in_line("feed") == 2, PATIENCE, "the task in line")
        assert run.result(PATIENCE).state == states.SUCCESS
