"""The counts by template and minute: what is counted, written and deleted, and quantiles."""

from __future__ import annotations

import time
from contextlib import suppress
from random import Random

import pytest
from django.db.models import Sum

from distlock import LockBusy, LockLost, minutes, zk_leader, zk_lock, zk_locked
from distlock.history import Recorder
from distlock.minutes import Counts, Key, quantile
from distlock.models import LockMinute
from distlock.signals import BUCKETS
from tests.history.conftest import counted
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree


@pytest.mark.usefixtures("tree", "history", "table")
@pytest.mark.engines("zookeeper", "redis")
def test_each_hold_and_failure_is_counted_with_its_template(
    own_recorder: Recorder, make_owner: MakeOwner, tree: Tree
) -> None:
    @zk_locked("stock:<sku>", timeout=0)
    def buy(sku: str) -> str:
        return sku

    with zk_leader("first"):
        buy("a")
    owner = make_owner()
    owner.now(zk_lock("stock:b").acquire)
    with pytest.raises(LockBusy):
        buy("b")
    owner.now(zk_lock("stock:b").release)
    with suppress(LockLost), zk_lock("c") as hold:
        tree.client.delete(hold.path)
        eventually(lambda: hold.lost, PATIENCE)
    assert own_recorder.flush(PATIENCE)
    rows = LockMinute.objects.values_list("template", "kind").annotate(Sum("count"))
    found = {(template, kind): number for template, kind, number in rows}
    assert found == {
        ("stock:<sku>", "wait"): 2,
        ("stock:<sku>", "hold"): 1,
        ("stock:<sku>", "busy"): 1,
        ("", "wait"): 2,
        ("", "hold"): 2,
        ("", "broken"): 1,
    }


def test_a_minute_is_taken_once_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 60_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    counts = Counts()
    counts.add("default", "t", "hold", 0.02)
    counts.add("default", "t", "hold", 0.021)
    now += 62  # a slow thread may still be at it
    assert counts.take(unfinished=False) == {}
    counts.add("default", "t", "busy", 0.0)
    now += 4
    assert counts.take(unfinished=False) == {(1000, "default", "t", "hold", 2): 2}
    assert counts.take(unfinished=False) == {}
    assert counts.take(unfinished=True) == {(1001, "default", "t", "busy", 0): 1}


@pytest.mark.usefixtures("table")
def test_what_is_older_than_a_day_and_an_hour_is_deleted() -> None:
    now = int(time.time()) // 60
    minutes.write({(now - 26 * 60, "other", "t", "hold", 0): 1}, "default")
    minutes.write({(now - 24 * 60, "other", "t", "hold", 0): 1}, "default")
    assert counted("hold") == 1


@pytest.mark.usefixtures("table")
def test_a_template_that_a_database_refuses_is_written_all_the_same() -> None:
    now = int(time.time()) // 60
    keys: list[Key] = [
        (now, "default", "\0" * 300 + middle + "\0" * 300, "hold", 0) for middle in "ab"
    ]
    minutes.write(dict.fromkeys(keys, 2), "default")
    assert LockMinute.objects.get().count == 4


@pytest.mark.parametrize("part", [0.5, 0.95, 1])
def test_a_quantile_is_in_the_bucket_of_the_true_one(part: float) -> None:
    values = sorted(Random(7).lognormvariate(-1, 2) for _ in range(1000))  # noqa: S311
    counts = Counts()
    for value in values:
        counts.add("", "", "wait", value)
    found = {key[-1]: number for key, number in counts.take(unfinished=True).items()}
    true = values[round(part * 1000) - 1]
    low = max((bound for bound in BUCKETS if bound < true), default=0.0)
    high = min(bound for bound in BUCKETS if bound >= true)
    assert low < quantile(part, found) <= high
    assert quantile(1, {len(BUCKETS): 1}) == BUCKETS[-1]
