"""What a task does while its lock is busy, in a real worker with Redis.

Waiting spends no retry, and nothing stays STARTED or PENDING.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from celery import Celery, chain, chord, states
from redis import Redis as Client

from distlock import LockBusy, zk_lock, zk_locked, zk_semaphore
from distlock.locks import mutex
from distlock.testing import hold
from tests.kit.celery_tools import PATIENCE, Fleet, Worker
from tests.kit.helpers import eventually
from tests.tasks.test_tickets import tickets_of
from tests.tasks.tools import Traced, tree_of
from tests.testproject.elsewhere import held_elsewhere, in_line

pytestmark = pytest.mark.engines("zookeeper", "redis")

TASKS = "tests.testproject.locked_tasks"


@pytest.fixture
def busy(troupe: Fleet, key: str) -> Iterator[Event]:
    """The test's process has the lock; setting the event frees it."""
    del troupe  # only its order matters
    with held_elsewhere(key, work="the test") as free:
        yield free


def task(troupe: Fleet, name: str) -> Any:
    return troupe.task(name, TASKS)


def await_state(result: Any, state: str) -> None:
    eventually(lambda: result.state == state, PATIENCE, f"{state} of {result}")


def run(result: Any) -> Any:
    return result.get(timeout=PATIENCE)


def test_three_contenders_without_any_retries_finish_under_their_own_ids(
    troupe: Fleet, key: str, busy: Event
) -> None:
    results = [task(troupe, "retry").delay(key, key) for _ in range(3)]
    for result in results:
        await_state(result, states.RETRY)
        assert isinstance(result.result, LockBusy)
    busy.set()
    said = [run(result) for result in results]
    assert [one["id"] for one in said] == [result.id for result in results]
    assert {one["retries"] for one in said} == {0}
    assert all(one["headers"]["distlock"]["busy"] > 0 for one in said)
    eventually(lambda: in_line(key) == 0, PATIENCE, "an empty line")


def test_tasks_under_a_limit_are_put_off_and_come_again(troupe: Fleet, key: str) -> None:
    results = [task(troupe, "two_at_a_time").delay(key, str(number)) for number in range(6)]
    assert [run(result) for result in results] == [str(number) for number in range(6)]
    inside = most = 0
    for line in troupe.stage.told(key):
        inside += 1 if line.facts[0] == "enter" else -1
        most = max(most, inside)
    assert (most, inside) == (2, 0)


def test_one_that_is_refused_by_one_rule_keeps_no_slot_of_another(troupe: Fleet, key: str) -> None:
    narrow, wide = zk_semaphore(key, 1), zk_semaphore(f"all of {key}", 2)
    with wide, wide:
        result = task(troupe, "by_two_rules").delay(key, "ada")
        await_state(result, states.RETRY)
        assert wide.key in str(result.result)
        eventually(narrow.acquire, PATIENCE, "the slot of the other rule")
    narrow.release()
    assert run(result) == "ada"


def test_one_that_is_put_off_gives_its_slot_to_others(troupe: Fleet, key: str, busy: Event) -> None:
    put_off = [task(troupe, "retry").delay(key, key) for _ in range(12)]  # three for each child
    for result in put_off:
        await_state(result, states.RETRY)
    assert run(task(troupe, "skip").delay(key, key)) == {"skipped": key}
    busy.set()
    for result in put_off:
        run(result)


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("name", ["limited", "hurried"])
def test_after_the_limit_or_the_deadline_the_error_names_the_holder(
    troupe: Fleet, key: str, name: str
) -> None:
    result = task(troupe, name).delay(key, key)
    with pytest.raises(LockBusy, match=r"put off \d+ times.*the test.*busy_limit") as raised:
        run(result)
    if name == "limited":
        assert "put off 2 times" in str(raised.value)
    assert result.state == states.FAILURE


@pytest.mark.usefixtures("busy")
def test_skip_is_a_success_with_a_value_that_can_be_seen(troupe: Fleet, key: str) -> None:
    result = task(troupe, "skip").delay(key, key)
    assert run(result) == {"skipped": key}
    assert result.state == states.SUCCESS
    assert not troupe.stage.told(key)


@pytest.mark.usefixtures("busy")
def test_a_callable_answers_with_the_arguments(troupe: Fleet, key: str) -> None:
    assert run(task(troupe, "answer").delay(key, actor="ada")) == f"ada does without {key}"


def test_a_task_with_an_ignored_result_is_put_off_and_runs(
    troupe: Fleet, key: str, busy: Event, worker: Worker
) -> None:
    result = task(troupe, "ignored").delay(key, key)
    eventually(lambda: f"[{result.id}] retry: Retry in" in worker.log, PATIENCE)
    busy.set()
    troupe.stage.await_entry(key)
    assert result.state == states.PENDING  # nothing was stored


def test_what_the_publisher_asked_for_survives(troupe: Fleet, key: str, busy: Event) -> None:
    """The queue's priority, an expiry, hidden arguments and headers of the site's own."""
    result = task(troupe, "retry").apply_async(
        (key, key), argsrepr="(hidden)", headers={"tenant": "north"}, expires=600, time_limit=300
    )
    await_state(result, states.RETRY)
    message: Any = eventually(lambda: _unacknowledged(troupe, result.id), PATIENCE)
    assert message["argsrepr"] == "(hidden)"
    assert message["expires"]
    assert message["timelimit"] == [300, None]
    busy.set()
    assert run(result)["headers"]["tenant"] == "north"


def _unacknowledged(troupe: Fleet, task_id: str) -> dict[str, Any] | None:
    """The headers of a message that a worker has, and for whose time it waits."""
    with Client.from_url(troupe.broker, decode_responses=True) as client:
        for text in client.hvals("unacked"):
            headers: dict[str, Any] = json.loads(text)[0]["headers"]
            if headers["id"] == task_id:
                return headers
    return None


# --- canvas --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("busy")
def test_a_chain_ends_with_the_error_of_a_refused_link(troupe: Fleet, key: str) -> None:
    links = chain(task(troupe, "refuse").s(key, "a"), task(troupe, "append").s(f"{key}-2", "b"))
    result = links.apply_async()
    with pytest.raises(LockBusy):
        run(result.parent)
    assert in_line(f"{key}-2") == 0


def test_a_chord_is_joined_after_all_were_put_off(troupe: Fleet, key: str, busy: Event) -> None:
    header = [task(troupe, "name_itself").s(key, name) for name in "abc"]
    result = chord(header)(task(troupe, "locked_join").s(key=key))
    for one in result.parent.results:
        await_state(one, states.RETRY)
    with held_elsewhere(f"joined:{key}") as free:
        busy.set()
        await_state(result, states.RETRY)
        free.set()
    assert run(result) == "a+b+c"


@pytest.mark.parametrize("name", ["patient", "queue"])
def test_the_canvas_goes_on_after_those_in_line_had_their_turn(
    troupe: Fleet, key: str, busy: Event, name: str
) -> None:
    links = chain(task(troupe, name).s(key, "a"), task(troupe, "append").s(f"{key}-2", "b"))
    header = [task(troupe, name).s(key, who) for who in "cd"]
    results = links.apply_async(), chord(header)(task(troupe, "join").s())
    waiting = [results[0].parent, *results[1].parent.results]
    if name == "patient":
        eventually(lambda: in_line(key) == 1 + len(waiting), PATIENCE, "three in line")
    else:
        with tree_of(troupe) as tree:
            eventually(lambda: len(tickets_of(tree, key)) == len(waiting), PATIENCE, "tickets")
    busy.set()
    assert [run(result) for result in results] == ["a+b", "c+d"]


# --- retries of the task's own -------------------------------------------------------------------


def test_autoretry_keeps_its_own_budget(troupe: Fleet, key: str, busy: Event) -> None:
    result = task(troupe, "fails_at_first").delay(key, key)
    await_state(result, states.RETRY)
    assert isinstance(result.result, LockBusy)
    busy.set()
    assert run(result) == 1
    assert len(troupe.stage.told(key, "enter")) == 2


def test_a_task_that_retries_under_its_lock_is_not_in_its_own_way(troupe: Fleet, key: str) -> None:
    """Its next run comes while the lock is held, and neither skips nor is dropped."""
    task(troupe, "retries_inside").delay(key, key)
    troupe.stage.await_entry(key)
    eventually(lambda: in_line(key) == 2, PATIENCE, "both runs in line")
    assert not troupe.stage.told(key, "second")
    troupe.stage.let_go(key)
    eventually(lambda: troupe.stage.told(key, "second"), PATIENCE, "the second run")


@pytest.mark.usefixtures("distlock_memory")
def test_a_retry_runs_if_the_holder_leaves_before_it_is_known(
    app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder may have been its earlier run."""

    @app.task(shared=False)
    @zk_locked("<key>", on_busy="raise", timeout=0)
    def refresh(key: str) -> None: ...

    with hold("7") as earlier_run:

        def leave(*_: object) -> None:
            earlier_run.release()
            eventually(lambda: not zk_lock("7").locked(), PATIENCE, "a free lock")

        monkeypatch.setattr(mutex, "participant", leave)
        assert Traced(refresh, "7", retries=1).state == states.SUCCESS


@pytest.mark.usefixtures("busy")
def test_a_chain_goes_on_with_the_value_of_a_skipped_link(troupe: Fleet, key: str) -> None:
    links = chain(task(troupe, "skip").s(key, "a"), task(troupe, "append").s(f"{key}-2", "b"))
    assert run(links.apply_async()) == f"{{'skipped': '{key}'}}+b"
