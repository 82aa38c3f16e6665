"""The history in the admin: a list of events, and a link to those of one lock on its page."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.test import Client

from distlock.history import Event
from distlock.models import LockEvent
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
