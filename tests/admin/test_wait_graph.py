"""A deadlock on the page: how it will end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from distlock import DeadlockDetected, zk_lock
from distlock.admin import reading
from distlock.conf import configuration
from distlock.owner.owner import label
from tests.admin.tools import LIST, markup, said
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree

if TYPE_CHECKING:
    from django.test import Client

    from tests.kit.losses import SetOptions

pytestmark = pytest.mark.engines("zookeeper", "redis")

#: Long enough for a few pages.
AFTER = 5


def _wait(key: str, work: str) -> bool:
    with label(work):
        return zk_lock(key, timeout=4 * PATIENCE).acquire()


def test_the_page_says_what_becomes_of_a_deadlock(
    tree: Tree,
    operator: Client,
    make_owner: MakeOwner,
    set_options: SetOptions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pretend(after: float | None) -> None:
        conf = replace(configuration("default"), deadlock_after=after)
        monkeypatch.setattr(reading, "configuration", lambda _: conf)

    set_options(DEADLOCK_AFTER=AFTER)
    first, second = make_owner(), make_owner()
    assert first.now(zk_lock("a").acquire)
    assert second.now(zk_lock("b").acquire)
    older = first.submit(_wait, "b", "the older job")
    tree.await_line("b", 2)
    newer = second.submit(_wait, "a", "the newer job")
    tree.await_line("a", 2)

    page = operator.get(LIST)
    assert "after DEADLOCK_AFTER (5.0 s), the newest waiter gives way, which is" in said(page)
    assert "(the newer job)." in said(page)
    pretend(None)
    assert "It may not end by itself. Ask a participant to release" in said(operator.get(LIST))

    with pytest.raises(DeadlockDetected):
        newer.result(PATIENCE)
    eventually(lambda: "data-cycle" not in markup(operator.get(LIST)), PATIENCE)
    second.now(zk_lock("b").release)
    assert older.result(PATIENCE)
    for key in ("b", "a"):
        first.now(zk_lock(key).release)
