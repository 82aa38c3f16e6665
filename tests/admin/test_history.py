"""The history in the admin: a list of events, and a link to those of one lock on its page."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from django.test import Client

from distlock import process
from distlock.history import Event
from distlock.models import LockEvent
from distlock.owner.hold import REASONS
from tests.admin.tools import MakeOperator, address, markup, said
from tests.kit.losses import SetOptions

EVENTS = "/admin/distlock/lockevent/"
pytestmark = pytest.mark.usefixtures("tree")


@pytest.fixture
def kept(set_options: SetOptions) -> None:
    """A history is kept."""
    set_options(HISTORY=1000)


def recorded(key: str = "key", kind: str = "held", **facts: Any) -> LockEvent:
    """A row of this process."""
    facts = {"using": "default", "at": time.time(), "waited": 1.5, "held_for": 75.0, **facts}
    row = Event(kind=LockEvent.Kind(kind), key=key, **facts).row()
    row.save()
    return row


# --- the page of a lock --------------------------------------------------------------------------


def test_without_a_history_the_page_of_a_lock_links_to_none(operator: Client) -> None:
    assert EVENTS not in markup(operator.get(address("key")))


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("name", ["key", "%leader:key", "@leases/key"])
def test_a_mutex_a_leader_and_a_lease_of_one_key_have_one_history(
    operator: Client, name: str
) -> None:
    recorded("key", owner="GET <1>", token=7)
    recorded("%leader:key", "lost", detail="Lost: its node is gone.")
    recorded("another key")
    recorded(using="other")
    page = markup(operator.get(address(name)))
    assert f'href="{EVENTS}?using__exact=default&amp;name__exact=key"' in page
    listed = operator.get(EVENTS, {"using__exact": "default", "name__exact": "key"})
    assert "2 history" in said(listed)
    assert "Lost: its node is gone." in said(listed)
    assert "GET <1>" in said(listed)
    assert "<1>" not in markup(listed)


# --- the list ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("kept")
def test_the_list_has_all_events_to_search_and_to_filter(operator: Client) -> None:
    recorded("stock:1", owner="GET /a")
    recorded("stock:2", "busy", held_for=None)
    page = operator.get(EVENTS)
    assert "stock:1" in said(page)
    assert "waited in vain" in said(page)
    assert "1 min 15 s" in said(page)
    assert "stock:1" not in said(operator.get(EVENTS, {"q": "ock:2"}))
    assert "GET /a" not in said(operator.get(EVENTS, {"kind__exact": "busy"}))


@pytest.mark.usefixtures("kept")
def test_an_outage_is_one_row_which_unfolds(operator: Client) -> None:
    start = time.time() // 3600 * 3600
    session = f"Lost: {REASONS['session']}."
    for number in range(50):
        recorded(f"stock:{number}", "failed", at=start + number, detail="No answer.")
        recorded(f"stock:{number}", "lost", at=start + number, detail=session)
    recorded("stock:1", "failed", at=start + 100, using="other")
    recorded("stock:1", "failed", at=start - 1)
    for number in range(2):  # of processes that stood still
        recorded("stock:8", "lost", at=start - 4000 + number, detail=session, owner="GET /buy/8")
    recorded("stock:7", "broken", at=start + 9, detail="Lost: its node is gone.")
    page = operator.get(EVENTS)
    assert re.findall(r'<li data-kind="(\w+)', markup(page)) == [
        "failed",
        "lost",
        "broken",
        "failed",
        "lost",
        "lost",
    ]
    assert said(page).count(f"GET /buy/8 {process.this.host}:{process.this.pid} Lost: ") == 2
    assert "outage 100 events on default" in said(page)
    assert "broken stock:7" in said(page)
    dates = re.findall(r'[?]at__day=[^"]*', markup(page))
    assert len(dates) == len(set(dates))
    of_one = operator.get(EVENTS, {"q": "stock:1"})  # and of ten to nineteen
    assert "outage 22 events on default" in said(of_one)
    assert (
        markup(operator.get(EVENTS, {"each": "1", "kind__exact": "lost"})).count("<li data") == 52
    )


@pytest.mark.usefixtures("kept")
def test_events_are_chosen_by_how_long_they_took(operator: Client) -> None:
    recorded("waited", waited=70.0, held_for=None)
    recorded("held", waited=0.0, held_for=70.0)
    recorded("short", waited=59.0, held_for=59.0)
    page = operator.get(EVENTS, {"lasted": 60})
    assert sorted(re.findall(r"<b>(\w+)</b>", markup(page))) == ["held", "waited"]


def test_it_can_be_read_only(operator: Client) -> None:
    row = recorded()
    assert operator.get(f"{EVENTS}add/").status_code == 403
    page = operator.get(f"{EVENTS}{row.pk}/change/")
    assert page.status_code == 200
    assert "_save" not in markup(page)
    assert operator.post(f"{EVENTS}{row.pk}/change/", {"key": "x"}).status_code == 403
    assert operator.post(f"{EVENTS}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    action = {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"}
    operator.post(EVENTS, action)
    assert LockEvent.objects.get().key == "key"


def test_who_may_not_see_locks_may_not_see_their_history(make_operator: MakeOperator) -> None:
    guest = make_operator()
    row = recorded()
    for path in (EVENTS, f"{EVENTS}{row.pk}/change/"):
        assert guest.get(path).status_code == 403


def test_it_is_in_the_index_if_one_is_kept(
    operator: Client, settings: Any, make_operator: MakeOperator
) -> None:
    assert EVENTS not in markup(operator.get("/admin/"))
    settings.DISTLOCK = {**settings.DISTLOCK, "third": {"HISTORY": 5}}
    assert EVENTS in markup(operator.get("/admin/"))
    assert EVENTS not in markup(make_operator("break_lock", name="another").get("/admin/"))
