"""``on_busy="queue"`` under several rules: a task has a ticket for each, the narrow one first."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from celery import Celery, states

from distlock import LimitReached, zk_limited, zk_semaphore
from distlock.celery.put_off import longest_pause
from distlock.celery.runs import MAX_PAUSE
from distlock.celery.tickets import TTL
from tests.kit.celery_tools import PATIENCE, Fleet
from tests.kit.helpers import eventually
from tests.kit.tools import Tree
from tests.tasks import test_wakes
from tests.tasks.test_tickets import AGAIN, ticket_path, tickets_of
from tests.tasks.test_wakes import SHORTEST_PAUSE, TASKS
from tests.tasks.tools import Traced, tree_of

pytestmark = pytest.mark.engines("zookeeper", "redis")

troupe = test_wakes.troupe


def reports(app: Celery, **options: Any) -> Any:
    """A task for two at a time of each customer, and three in all."""
    options = {"busy_deadline": None, **options}

    @app.task(shared=False)
    @zk_limited({"all": 3, "customer:<customer>": 2}, on_busy="queue", **options)
    def report(customer: int, who: str) -> str:
        return f"{customer} {who}"

    return report


def run(report: Any, who: str, headers: Any = None) -> Any:
    """Run the task of a customer, whose name it begins with."""
    return Traced(report, int(who[0]), who, headers=headers, task_id=who)


def refusal(report: Any, who: str, headers: Any = None) -> str:
    """The template of the rule that refuses."""
    traced = run(report, who, headers)
    assert traced.state == states.RETRY
    return str(traced.error.exc.template)


def lines(tree: Tree) -> list[str]:
    """The tickets under the rule for all, and under that of customer 1."""
    return [" ".join(tickets_of(tree, key)) for key in ("all", "customer:1")]


def test_of_one_customers_tasks_no_more_are_in_the_wide_line_than_may_run(
    app: Celery, tree: Tree
) -> None:
    report, wide = reports(app), zk_semaphore("all", 3)
    assert wide.acquire(timeout=0, leases=3)
    refused = [refusal(report, who) for who in ("1a", "1b", "1c", "1d", "2a")]
    narrow = "customer:<customer>"
    assert refused == ["all", "all", narrow, narrow, "all"]
    assert lines(tree) == ["1a 1b 2a", "1a 1b 1c 1d"]
    assert refusal(report, "1c", AGAIN) == narrow
    wide.release()
    assert refusal(report, "1b", AGAIN) == "all"
    assert run(report, "1a", AGAIN).state == states.SUCCESS
    eventually(lambda: lines(tree) == ["1b 2a", "1b 1c 1d"])
    assert refusal(report, "1c", AGAIN) == "all"
    assert refusal(report, "3a") == "all"
    assert lines(tree) == ["1b 2a 1c 3a", "1b 1c 1d"]
    wide.release(2)
    for who in ("1b", "2a", "1c", "3a", "1d"):
        assert run(report, who, AGAIN).state == states.SUCCESS
    eventually(lambda: lines(tree) == ["", ""])


def test_a_task_whose_narrow_turn_is_gone_keeps_nobody_in_the_wide_line(
    app: Celery, tree: Tree
) -> None:
    report, wide = reports(app), zk_semaphore("all", 3)
    assert wide.acquire(timeout=0, leases=3)
    assert [refusal(report, who) for who in ("1a", "2a")] == ["all", "all"]
    with zk_semaphore("customer:1", 2), zk_semaphore("customer:1", 2):  # by a view, for example
        wide.release()
        assert refusal(report, "1a", AGAIN) == "customer:<customer>"
        eventually(lambda: lines(tree) == ["2a", "1a"])
        assert refusal(report, "1a", AGAIN) == "customer:<customer>"  # though it is the first
        assert run(report, "2a", AGAIN).state == states.SUCCESS
    wide.release(2)
    assert run(report, "1a", AGAIN).state == states.SUCCESS
    eventually(lambda: lines(tree) == ["", ""])


def test_each_try_renews_both_tickets(app: Celery, tree: Tree) -> None:
    report, wide = reports(app), zk_semaphore("all", 3)
    assert wide.acquire(timeout=0, leases=3)
    for headers in (None, AGAIN):
        assert refusal(report, "1a", headers) == "all"
    for key in ("all", "customer:1"):
        data, stat = tree.client.get(ticket_path(tree, "1a", key, of="@permits"))
        assert (json.loads(data)["ttl"], stat.version) == (TTL, 1)
    wide.release(3)
    assert run(report, "1a", AGAIN).state == states.SUCCESS


def test_a_ticket_lasts_for_a_try_and_the_longest_pause_without_wakes(app: Celery) -> None:
    assert MAX_PAUSE + longest_pause(app, 10**6, retry_after=60) <= TTL


def test_who_is_refused_for_good_gives_both_tickets_back(app: Celery, tree: Tree) -> None:
    report = reports(app, busy_limit=1)
    wide = zk_semaphore("all", 3)
    assert wide.acquire(timeout=0, leases=3)
    assert refusal(report, "1a") == "all"
    assert lines(tree) == ["1a", "1a"]
    last = run(report, "1a", AGAIN)
    assert (last.state, type(last.error)) == (states.FAILURE, LimitReached)
    assert (last.error.key, last.error.template) == ("all", "all")
    eventually(lambda: lines(tree) == ["", ""])
    wide.release(3)


# --- in workers ----------------------------------------------------------------------------------


class Line:
    """Tasks that wait for each other, of customers whose name they begin with.

    The first of two customers hold all permits there are.
    """

    def __init__(self, troupe: Fleet, key: str, tree: Tree) -> None:
        self._task = troupe.task("queue_by_two_rules", TASKS)
        self._stage, self._key, self._tree = troupe.stage, key, tree
        self.holders = [f"first-{customer}-{key}" for customer in "ab"]
        for customer, holder in zip("ab", self.holders, strict=True):
            self._task.delay(key, customer, holder)
            self._stage.await_entry(holder)

    def _has(self, key: str, tickets: int) -> bool:
        return len(tickets_of(self._tree, key.replace("<key>", self._key))) == tickets

    def put_off(self, actor: str, **tickets: int) -> Any:
        """Send a task, and await its tickets, in all and of its customer."""
        sent = self._task.delay(self._key, actor[0], actor)
        of = {"in_all": "all of <key>", "narrow": f"<key>:{actor[0]}"}
        for name, number in tickets.items():
            eventually(
                partial(self._has, of[name], number), PATIENCE, f"{number} {name} with {actor}"
            )
        return sent

    def begins_in_order(self, *actors: str) -> None:
        """Let the first go, and await all; then nothing is left."""
        self._stage.let_go(self.holders[0])
        for actor in actors:
            eventually(partial(self._has_begun, actor), PATIENCE, actor)
        self._stage.let_go(self.holders[1])
        (left,) = self._stage.told(self.holders[0], "leave")
        entries = [one for one in self._stage.told(self._key, "enter") if one.facts[1] in actors]
        # One whose worker is killed before it acknowledges a message may run twice.
        assert list(dict.fromkeys(one.facts[1] for one in entries)) == list(actors)
        assert (entries[-1].when - left.when) / 1e9 < SHORTEST_PAUSE
        lines = ("all of <key>", "<key>:a", "<key>:b", "<key>:c")
        eventually(lambda: all(self._has(line, 0) for line in lines), PATIENCE, "no ticket left")

    def _has_begun(self, actor: str) -> bool:
        return any(line.facts[1] == actor for line in self._stage.told(self._key, "enter"))


def test_a_small_customer_passes_a_flood_and_each_line_keeps_its_order(
    troupe: Fleet, key: str
) -> None:
    with troupe.worker(), troupe.worker(), ExitStack() as stack:
        line = Line(troupe, key, stack.enter_context(tree_of(troupe)))
        for number, actor in enumerate(("a1", "a2", "a3"), 1):
            line.put_off(actor, in_all=0, narrow=number)
        line.put_off("c1", in_all=1, narrow=1)
        line.begins_in_order("c1", "a1", "a2", "a3")


def test_a_task_that_is_revoked_in_the_wide_line_gives_both_places_to_the_next(
    troupe: Fleet, key: str
) -> None:
    with troupe.worker() as worker, ExitStack() as stack:
        line = Line(troupe, key, stack.enter_context(tree_of(troupe)))
        never = line.put_off("c-never", in_all=1, narrow=1)
        line.put_off("c1", in_all=1, narrow=2)
        never.revoke()
        eventually(lambda: f"revoked: {never.id}" in worker.log, PATIENCE)
        line.begins_in_order("c1")


def test_a_task_whose_process_dies_and_that_comes_again_keeps_its_place(
    troupe: Fleet, key: str
) -> None:
    with troupe.worker(), ExitStack() as stack:
        line = Line(troupe, key, stack.enter_context(tree_of(troupe)))
        line.put_off("c-dies", in_all=1, narrow=1)
        line.put_off("c1", in_all=1, narrow=2)
        line.begins_in_order("c-dies", "c1")
    assert troupe.stage.told("c-dies", "dies")


@pytest.mark.parametrize("troupe", ["rabbitmq"], indirect=True)  # it delivers again at once
def test_the_tasks_of_a_killed_worker_keep_their_places(troupe: Fleet, key: str) -> None:
    with ExitStack() as stack, troupe.worker(concurrency=2):
        line = Line(troupe, key, stack.enter_context(tree_of(troupe)))
        killed = stack.enter_context(troupe.worker())
        line.put_off("c1", in_all=1, narrow=1)
        line.put_off("a1", in_all=1, narrow=1)
        line.put_off("c2", in_all=1, narrow=2)
        os.killpg(killed.process.pid, signal.SIGKILL)
        line.begins_in_order("c1", "a1", "c2")
