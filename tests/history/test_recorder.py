"""The thread that writes: batches, the bound, a database that goes away, and what is dropped."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections, transaction
from pytest_django import Settings

from distlock import history as recorder
from distlock.history import Recorder, flush, record
from distlock.models import LockEvent
from distlock_chaos.proxy import TcpProxy
from tests.history.conftest import counted, create_table, drop_table, keys
from tests.history.tools import KEY, event, refuse
from tests.kit.helpers import logged
from tests.kit.losses import SetOptions
from tests.kit.tools import PATIENCE

pytestmark = pytest.mark.usefixtures("distlock_settings", "history")
with_table = pytest.mark.usefixtures("table")


def names(count: int, prefix: str = "k") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


@with_table
def test_events_are_written_in_order_by_another_thread(own_recorder: Recorder) -> None:
    for key in names(20):
        record(event(key))
    assert own_recorder.flush()
    assert keys() == names(20)


@with_table
def test_the_signals_lead_to_rows(own_recorder: Recorder) -> None:
    refuse("café/1")
    assert own_recorder.flush()
    (found,) = LockEvent.objects.all()
    assert (found.key, found.name, found.kind) == ("café/1", "caf%C3%A9%2F1", "busy")
    assert found.waited == 0.5


@with_table
@pytest.mark.usefixtures("own_recorder")
def test_text_that_a_database_refuses_is_written_all_the_same() -> None:
    text = "\0\n\ud800\N{RIGHT-TO-LEFT OVERRIDE}" + "x" * 10_000
    key = "\0" + "x" * 10_000
    record(event(key, owner=text, detail=text, token=2**63 - 1))
    record(event())
    flush()
    found, _ = LockEvent.objects.order_by("id")
    assert len(found.key) == len(found.owner) == LockEvent.LONGEST
    assert len(found.detail) <= LockEvent.LONGEST_DETAIL
    assert found.detail.isprintable()


@with_table
def test_an_event_that_cannot_be_written_is_dropped_with_its_batch(
    own_recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    own_recorder.record(event(token=2**70))
    own_recorder.flush()
    assert "cannot be written" in logged(caplog)[0]
    own_recorder.record(event())
    own_recorder.flush()
    assert keys() == [KEY]
    assert own_recorder.dropped == 1
    assert "Events lost so far: 1." in logged(caplog)[1]


@with_table
def test_without_time_zones_rows_have_local_times(
    own_recorder: Recorder, settings: Settings
) -> None:
    settings.USE_TZ = False
    own_recorder.record(event())
    own_recorder.flush()
    (found,) = LockEvent.objects.all()
    assert found.at.tzinfo is None


# --- the bound -----------------------------------------------------------------------------------


@with_table
def test_the_oldest_rows_of_an_alias_are_pruned(
    own_recorder: Recorder, history: SetOptions, settings: Settings
) -> None:
    history(HISTORY=20)
    settings.DISTLOCK = {**settings.DISTLOCK, "other": settings.DISTLOCK["default"]}
    own_recorder.record(event("kept")._replace(using="other"))
    for key in names(100):
        own_recorder.record(event(key))
        own_recorder.flush()
        assert LockEvent.objects.filter(using="default").count() <= 20 + 2
    own_recorder.record(event("last"))
    own_recorder.flush()
    assert keys()[0] == "kept"
    assert keys()[-20:] == [*names(100)[-19:], "last"]


@with_table
def test_each_new_process_prunes_with_its_first_batch(
    own_recorder: Recorder, history: SetOptions
) -> None:
    history(HISTORY=20)
    for key in names(20):
        record(event(key))
    own_recorder.flush()
    for _ in range(3):  # as three commands that have one event each
        other = Recorder()
        other.record(event())
        assert other.flush()
    assert keys() == [*names(20)[3:], KEY, KEY, KEY]


# --- faults --------------------------------------------------------------------------------------


@with_table
def test_without_a_table_the_log_says_what_to_do_once_and_the_rest_is_written(
    own_recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    drop_table()
    for key in names(3):
        own_recorder.record(event(key))
        own_recorder.flush()
    assert own_recorder.dropped == 3
    create_table()
    own_recorder.record(event("later"))
    own_recorder.flush()
    assert keys() == ["later"]
    line, again = logged(caplog)
    assert "`manage.py migrate distlock` makes its tables" in line
    assert "Events lost so far: 3." in again
    assert [one.levelno for one in caplog.records] == [logging.ERROR, logging.WARNING]


@pytest.mark.parametrize("options", ["postgresql"], indirect=True)  # SQLite is a file
def test_rows_are_written_again_once_the_database_is_back(
    own_recorder: Recorder,
    options: dict[str, Any],
    use: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        TcpProxy(options["HOST"], int(options["PORT"])) as link,
        use({**options, "PORT": str(link.port), "CONN_MAX_AGE": None}),
    ):
        own_recorder.record(event("before"))
        own_recorder.flush()
        link.cut()
        own_recorder.record(event("meanwhile"))
        assert own_recorder.flush(PATIENCE)
        link.pass_through()
        connections["default"].close()
        own_recorder.record(event("after"))
        own_recorder.flush()
        assert keys() == ["before", "after"]
        link.cut()  # the thread closes a connection that fails
        own_recorder.record(event())
        assert own_recorder.flush(PATIENCE)
    first, again, second = logged(caplog)
    assert "cannot be written" in first
    assert "Events lost so far: 1." in again
    assert "cannot be written" in second


@with_table
def test_what_does_not_fit_is_dropped_and_counted(
    own_recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MOST", 0)
    own_recorder.record(event())
    assert own_recorder.dropped == 1
    monkeypatch.setattr(recorder, "MOST", 10)
    own_recorder.record(event("later"))
    own_recorder.flush()
    assert keys() == ["later"]


# --- the caller's side ---------------------------------------------------------------------------


@with_table
@pytest.mark.parametrize("options", ["postgresql"], indirect=True)  # SQLite has one writer
def test_a_transaction_of_the_caller_does_not_hold_rows_back(own_recorder: Recorder) -> None:
    with transaction.atomic():
        LockEvent.objects.create(**vars_of("in the transaction"))
        record(event())
        own_recorder.flush()
        transaction.set_rollback(True)
    assert keys() == [KEY]


def vars_of(key: str) -> dict[str, Any]:
    found = vars(event(key).row())
    return {name: value for name, value in found.items() if name not in {"_state", "id"}}


def test_rows_are_committed_where_the_site_commits_itself(
    own_recorder: Recorder, options: dict[str, Any], use: Callable[..., Any]
) -> None:
    with use({**options, "AUTOCOMMIT": False}):
        connections["default"].commit()
        record(event())
        own_recorder.flush()
        assert keys() == [KEY]


def test_in_a_test_run_nothing_is_recorded(
    own_recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django.test.utils._TestState.saved_data", object(), raising=False)
    record(event())
    assert own_recorder._events.empty()
    assert own_recorder._role


@with_table
def test_a_signal_handler_may_interrupt_any_line_and_record_itself(
    own_recorder: Recorder, history: SetOptions
) -> None:
    history(HISTORY=100_000)
    count = 0

    def handle(*_: object) -> None:
        nonlocal count
        count += 1
        refuse("handler")

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0005)
    try:
        sent = 0
        ends_at = time.monotonic() + 1
        while time.monotonic() < ends_at:
            refuse()
            sent += 1
            time.sleep(0.0005)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert count
    assert own_recorder.flush(PATIENCE)
    dropped = own_recorder.dropped
    assert counted("busy") == counted("wait") == sent + count
    assert LockEvent.objects.filter(kind="busy").count() + dropped == sent + count


@with_table
def test_many_threads_that_record_first_have_one_writer(own_recorder: Recorder) -> None:
    before = set(threading.enumerate())
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        record(event())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert own_recorder.flush()
    assert len(keys()) == 8
    writers = [one for one in threading.enumerate() if one.name == "distlock-history"]
    assert len(set(writers) - before) == 1
