"""``@zk_limited("customer:<id>", 3)``: at most so many calls at a time for each key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from distlock import LimitReached, LockBusy, LockKeyError, zk_limited, zk_semaphore
from tests.kit.helpers import eventually

if TYPE_CHECKING:
    from tests.kit.tools import MakeOwner

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]

LIMITS = {"small": 1, "large": 3}


class Desk:
    """Calls come in, and stay until they are let go."""

    def __init__(self) -> None:
        self.open = Event()
        self.inside = 0

    def visit(self) -> None:
        self.inside += 1
        assert self.open.wait(20)


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.open.set()


def test_as_many_calls_as_the_limit_are_inside_for_each_key(
    desk: Desk, make_owner: MakeOwner
) -> None:
    @zk_limited("customer:<pk>", 2, timeout=0)
    def report(pk: int) -> int:
        desk.visit()
        return pk

    calls = [make_owner().submit(report, 1) for _ in range(2)]
    eventually(lambda: desk.inside == 2)
    with pytest.raises(LimitReached) as busy:
        report(1)
    assert isinstance(busy.value, LockBusy)
    assert (busy.value.key, zk_semaphore("customer:1", 2).held) == ("customer:1", 2)
    calls.append(make_owner().submit(report, 2))
    eventually(lambda: desk.inside == 3)
    desk.open.set()
    assert [call.result(20) for call in calls] == [1, 1, 2]
    assert report(1) == 1
    assert zk_semaphore("customer:1", 2).held == 0


def test_the_limit_may_depend_on_the_arguments(desk: Desk, make_owner: MakeOwner) -> None:
    @zk_limited("team:<team>", lambda team: LIMITS[team], timeout=0, on_busy="skip")
    def report(team: str) -> str:
        desk.visit()
        return team

    calls = [make_owner().submit(report, "large") for _ in range(3)]
    calls.append(make_owner().submit(report, "small"))
    eventually(lambda: desk.inside == 4)
    assert report("large") is None
    assert report("small") is None
    desk.open.set()
    assert [call.result(20) for call in calls] == ["large"] * 3 + ["small"]


def test_a_heavy_call_takes_several_permits(desk: Desk, make_owner: MakeOwner) -> None:
    @zk_limited("exports", 3, permits=2, timeout=0)
    def heavy() -> None:
        desk.visit()

    call = make_owner().submit(heavy)
    eventually(lambda: desk.inside == 1)
    assert zk_semaphore("exports", 3).held == 2
    with pytest.raises(LimitReached):
        heavy()
    desk.open.set()
    assert call.result(20) is None
    assert zk_semaphore("exports", 3).held == 0


def test_a_call_that_raises_gives_its_permits_back() -> None:
    @zk_limited("exports", 2, permits=2)
    def heavy() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        heavy()
    assert zk_semaphore("exports", 2).held == 0


def test_a_view_without_a_permit_answers_429(desk: Desk, make_owner: MakeOwner) -> None:
    @zk_limited("customer:<pk>", 1, timeout=0)
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        desk.visit()
        return HttpResponse(f"{request.method} {pk}")

    request = RequestFactory().get("/", headers={"accept": "application/json"})
    call = make_owner().submit(view, request, pk=1)
    eventually(lambda: desk.inside == 1)
    answer = view(request, pk=1)
    assert (answer.status_code, answer["Content-Type"]) == (429, "application/problem+json")
    assert int(answer["Retry-After"]) >= 1
    desk.open.set()
    assert call.result(20).status_code == 200


def test_coroutines_are_limited_too() -> None:
    inside = most = 0

    @zk_limited("customer:<pk>", 2, timeout=20)
    async def report(pk: int) -> int:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.05)
        inside -= 1
        return pk

    async def main() -> list[int]:
        return await asyncio.gather(*(report(1) for _ in range(5)))

    assert asyncio.run(main()) == [1] * 5
    assert most == 2


def test_all_rules_hold_and_the_one_that_refuses_is_named(
    desk: Desk, make_owner: MakeOwner
) -> None:
    @zk_limited({"reports": 2, "customer:<pk>": 1}, timeout=0)
    def report(request: HttpRequest, pk: int) -> HttpResponse:
        desk.visit()
        return HttpResponse(f"{request.method} {pk}")

    def held() -> list[int]:
        customers = [zk_semaphore(f"customer:{pk}", 1) for pk in (1, 2, 3)]
        return [one.held for one in (zk_semaphore("reports", 2), *customers)]

    request = RequestFactory().get("/", headers={"accept": "application/json"})
    calls = [make_owner().submit(report, request, 1)]
    eventually(lambda: desk.inside == 1)
    for pk, refused, taken in ((1, "customer:<pk>", [1, 1, 0, 0]), (3, "reports", [2, 1, 1, 0])):
        answer = report(request, pk)
        assert (answer.status_code, json.loads(answer.content)["limit"]) == (429, refused)
        assert held() == taken  # nothing of the rule that did not refuse
        if pk == 1:
            calls.append(make_owner().submit(report, request, 2))
            eventually(lambda: desk.inside == 2)
    desk.open.set()
    assert [call.result(20).status_code for call in calls] == [200, 200]
    assert held() == [0, 0, 0, 0]


def test_who_waits_for_one_rule_keeps_nobody_from_a_wider_one(
    desk: Desk, make_owner: MakeOwner
) -> None:
    @zk_limited({"all": 2, "customer:<pk>": 1}, timeout=20)
    def report(pk: int) -> int:
        desk.visit()
        return pk

    flood = [make_owner().submit(report, 1) for _ in range(4)]
    eventually(lambda: desk.inside == 1 and len(zk_semaphore("customer:1", 1).waiters()) == 3)
    small = make_owner().submit(report, 2)
    eventually(lambda: desk.inside == 2)
    desk.open.set()
    assert [call.result(20) for call in [*flood, small]] == [1, 1, 1, 1, 2]


def test_functions_that_name_rules_in_another_order_never_deadlock(make_owner: MakeOwner) -> None:
    @zk_limited({"mail": 1, "print": 1}, timeout=20)
    def mails() -> str:
        return "done"

    @zk_limited({"print": 1, "mail": 1}, timeout=20)
    def prints() -> str:
        return "done"

    mail, printer = zk_semaphore("mail", 1), zk_semaphore("print", 1)
    with mail, printer:
        calls = [make_owner().submit(call) for call in (mails, prints)]
        # Each would have its first rule now, and wait for the other's.
        eventually(lambda: len(mail.waiters()) + len(printer.waiters()) == 2)
    assert [call.result(15) for call in calls] == ["done", "done"]


@pytest.mark.parametrize(
    ("limit", "how"),
    [(0, {}), (True, {}), ("3", {}), (3, {"permits": 0})],
)
def test_what_cannot_be_is_refused_at_decoration(limit: Any, how: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match=r"permit|limit"):
        zk_limited("customer:<pk>", limit, **how)


@pytest.mark.parametrize("rules", [("customer:<pk>",), ({"customer:<pk>": 3}, 3), ({},)])
def test_rules_without_limits_are_refused_at_decoration(rules: Any) -> None:
    with pytest.raises(TypeError, match="zk_limited takes a key and its limit, or a dict"):
        zk_limited(*rules)


def test_several_rules_are_never_gone_without() -> None:
    with pytest.raises(ValueError, match="is for one rule"):
        zk_limited({"reports": 40, "customer:<pk>": 3}, on_unavailable="proceed")


def test_each_rule_names_arguments_of_the_function() -> None:
    with pytest.raises(LockKeyError, match=r"'team:<team>' .* names 'team'"):

        @zk_limited({"reports": 2, "team:<team>": 1})
        def report(pk: int) -> None: ...
