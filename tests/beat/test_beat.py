"""The schedulers of two hosts, in one process, ticked by hand."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery
from celery.beat import Scheduler

from distlock import Hold, LockLost, zk_leader
from distlock.celery.beat import LOOK_SECONDS, LeaderMixin, LeaderScheduler, _Runs
from distlock.locks.leader import Leader
from distlock.session.registry import session_for
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, Tree, expire

if TYPE_CHECKING:
    Hosts = Callable[..., "Host"]

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]

HOUR = timedelta(hours=1)
NAME = "beat:shop"


class Host(LeaderMixin, Scheduler):  # type: ignore[misc]  # Celery has no types
    """A scheduler that notes the names of what it sends."""

    def __init__(self, using: str, **options: Any) -> None:
        self.using = using  # type: ignore[misc]  # a host is a process otherwise
        self.sent: list[str] = []
        super().__init__(Celery("shop", broker="memory://", set_as_current=False), **options)

    def apply_async(self, entry: Any, **_: Any) -> None:
        self.sent.append(entry.name)

    def tick_until_it_leads(self) -> None:
        eventually(lambda: self.tick() != LOOK_SECONDS and self._runs, PATIENCE, "one that leads")

    def runs(self, name: str = "hourly", every: timedelta = HOUR, ago: timedelta = HOUR) -> None:
        """Have a task in the schedule that was sent so long ago, as far as this host knows."""
        last = datetime.now(timezone.utc) - ago
        self.add(name=name, task=name, schedule=every, last_run_at=last)


@pytest.fixture
def host() -> Iterator[Hosts]:
    """Makes a host with an alias of its own, and an hourly task that is due."""
    with ExitStack() as stack:

        def make(using: str = "default", *, hourly: bool = True, **options: Any) -> Host:
            host = Host(using, **options)
            stack.callback(host.close)
            if hourly:
                host.runs()
            return host

        yield make


def test_only_the_leader_sends(host: Hosts) -> None:
    first, second = host(), host("other")
    first.tick_until_it_leads()
    assert second.tick() == LOOK_SECONDS
    eventually(lambda: len(zk_leader(NAME).participants()) == 2, PATIENCE)
    assert second.tick() == LOOK_SECONDS
    assert (first.sent, second.sent) == (["hourly"], [])


def test_the_next_one_sends_nothing_that_was_sent(host: Hosts) -> None:
    first, second = host(), host("other")
    first.tick_until_it_leads()
    first.close()
    second.tick_until_it_leads()
    second.tick()
    assert (first.sent, second.sent) == (["hourly"], [])


def test_the_next_one_sends_what_became_due_while_nobody_led(host: Hosts) -> None:
    first, second = host(), host("other")
    first.runs("often", timedelta(seconds=0.5))
    second.runs("often", timedelta(seconds=0.5))
    first.tick_until_it_leads()
    eventually(lambda: first.tick() and "often" in first.sent, PATIENCE)
    first.close()
    second.tick_until_it_leads()
    eventually(lambda: second.tick() and second.sent, PATIENCE)
    assert set(second.sent) == {"often"}


def test_what_is_loaded_anew_is_not_sent_twice(host: Hosts) -> None:
    """As by django-celery-beat, whose table may be minutes behind."""
    only = host()
    only.tick_until_it_leads()
    only.runs()
    only._heap = None
    assert only.tick() > LOOK_SECONDS
    assert only.sent == ["hourly"]


@pytest.mark.parametrize("first_sent", ["nothing", "something"])
def test_one_that_led_before_the_record_was_changed_sends_nothing(
    host: Hosts, first_sent: str
) -> None:
    """It was stopped between its look at the hold and the claim, and another has led meanwhile."""
    first = host(hourly=False)
    first.tick_until_it_leads()
    first.runs()
    if first_sent == "something":
        first.runs("another")
        assert first._runs is not None
        first._runs.claim("another", first.schedule)
    assert first._runs is not None
    theirs = _Runs(first._runs.hold, zk_leader(NAME, using="other"))
    theirs.claim("hourly", {"hourly", "another"})
    assert first.tick() == LOOK_SECONDS
    assert first.tick() > LOOK_SECONDS
    assert first.sent == []


@pytest.mark.parametrize("checks", [0, 1, 2])
def test_a_run_that_is_claimed_and_not_sent_is_left_to_the_next_one_if_it_can_be(
    host: Hosts, checks: int, monkeypatch: pytest.MonkeyPatch, tree: Tree
) -> None:
    """The hold is lost before the claim, by its answer, or just before the message is sent."""
    first = host()
    first.runs("another", ago=timedelta(0))
    first.tick_until_it_leads()
    assert first._runs is not None
    checked: list[int] = []

    def check(hold: Hold) -> None:
        checked.append(1)
        if len(checked) > checks:
            raise LockLost(hold=hold)

    monkeypatch.setattr(Hold, "check", check)
    first.runs("late")
    assert first.tick() == LOOK_SECONDS
    assert first.sent == ["hourly"]
    assert ("late" in record(tree)["sent"]) == (checks == 2)


def test_one_whose_session_has_ended_stops_and_stands_in_line_again(
    host: Hosts, zookeeper: ZooKeeper
) -> None:
    first, second = host(hourly=False), host("other", hourly=False)
    first.tick_until_it_leads()
    second.tick()
    eventually(lambda: len(zk_leader(NAME).participants()) == 2, PATIENCE)
    expire(zookeeper.hosts, session_for())
    second.tick_until_it_leads()
    eventually(lambda: first._stand().leading() is None, PATIENCE)
    first.runs()
    assert first.tick() == LOOK_SECONDS
    assert first.sent == []
    eventually(lambda: len(zk_leader(NAME).participants()) == 2, PATIENCE)
    second.close()
    first.tick_until_it_leads()
    assert first.sent == ["hourly"]


def test_nothing_is_sent_while_zookeeper_is_away(broken_link: TcpProxy, host: Hosts) -> None:
    only = host()
    broken_link.cut()
    assert only.tick() == LOOK_SECONDS
    broken_link.pass_through()
    only.tick_until_it_leads()
    broken_link.black_hole()
    only.runs("late")
    assert only.tick() == LOOK_SECONDS
    assert only.sent == ["hourly"]
    broken_link.pass_through()


def test_a_beat_that_waits_in_line_can_be_closed(host: Hosts) -> None:
    first, second = host(), host("other")
    first.tick_until_it_leads()
    second.tick()
    eventually(lambda: len(zk_leader(NAME).participants()) == 2, PATIENCE)
    second.close()
    second.close()
    eventually(lambda: len(zk_leader(NAME).participants()) == 1, PATIENCE)
    assert second.tick() == LOOK_SECONDS


def test_one_that_is_only_looked_at_does_not_stand_in_line(host: Hosts) -> None:
    host(lazy=True).close()
    assert zk_leader(NAME).participants() == []


def test_another_name_is_another_fleet(host: Hosts) -> None:
    first, second = host(), host("other")
    second.app.conf.distlock_beat_name = "reports"
    first.tick_until_it_leads()
    second.tick_until_it_leads()
    assert zk_leader("reports").leader() is not None


def test_what_is_not_scheduled_any_more_is_forgotten(host: Hosts, tree: Tree) -> None:
    only = host()
    only.tick_until_it_leads()
    del only.schedule["hourly"]
    only.runs("another")
    eventually(lambda: only.tick() and "another" in only.sent, PATIENCE)
    assert set(record(tree)["sent"]) == {"another"}


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b'{"sent":[]}', b'{"sent":{"hourly":"x"}}'])
def test_a_record_that_is_not_readable_is_written_anew(
    host: Hosts, tree: Tree, data: bytes
) -> None:
    tree.client.create(f"{tree.namespace}/@beat/{NAME}", data, makepath=True)
    only = host()
    only.tick_until_it_leads()
    assert only.sent == ["hourly"]
    assert record(tree)["sent"]["hourly"] == pytest.approx(time.time(), abs=PATIENCE)


def test_what_ends_the_candidate_ends_beat(host: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ArithmeticError("of the candidate")

    monkeypatch.setattr(Leader, "run", fails)
    only = host()
    with pytest.raises(ArithmeticError, match="of the candidate"):
        eventually(lambda: only.tick() != LOOK_SECONDS, PATIENCE)


def test_celerys_own_scheduler_keeps_its_file(tmp_path: Path) -> None:
    app = Celery("shop", broker="memory://", set_as_current=False)
    scheduler = LeaderScheduler(app, schedule_filename=str(tmp_path / "schedule"))
    try:
        eventually(lambda: scheduler.tick() != LOOK_SECONDS, PATIENCE)
    finally:
        scheduler.close()
    assert list(tmp_path.iterdir())
    assert scheduler._candidate is not None
    assert not scheduler._candidate.is_alive()


def record(tree: Tree) -> Any:
    data, _ = tree.client.get(f"{tree.namespace}/@beat/{NAME}")
    return json.loads(data)
