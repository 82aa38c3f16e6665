"""The history in the admin: the events of one lock on its page, and all in a list."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.utils.timezone import localtime

from distlock import zk_lock
from distlock.history.recorder import Event
from distlock.models import LockEvent
from tests.admin.tools import address, markup, said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.test import Client

    from tests.admin.tools import MakeOperator
    from tests.kit.losses import SetOptions
    from tests.kit.tools import MakeOwner

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


def test_a_lock_without_a_history_says_how_to_keep_one(operator: Client) -> None:
    page = said(operator.get(address("key")))
    assert "No history is kept. To keep the last events of all locks and processes" in page
    assert '"HISTORY": 10_000' in page


@pytest.mark.usefixtures("kept")
def test_the_events_of_a_lock_are_shown_the_last_one_first(operator: Client) -> None:
    recorded(at=time.time() - 60, owner="GET <1>", token=7)
    last = recorded(kind="lost", detail="Lost: its node is gone.", owner="task 7")
    recorded("another key")
    recorded(using="other")
    page = operator.get(address("key"))
    text, rows = said(page), markup(page).split('data-event="')[1:]
    assert [row.partition('"')[0] for row in rows] == ["lost", "held"]
    assert f"{localtime(last.at):%Y-%m-%d %H:%M:%S %z}" in text
    assert "lost Lost: its node is gone. task 7 Host" in text
    assert f"GET <1> Host {last.hostname} Process {last.pid} 1.5 s 1 min 15 s" in text
    assert "It has the holds that waited or lasted 1.0 s or longer" in text
    assert "<1>" not in markup(page)


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("name", ["key", "%leader:key", "@leases/key"])
def test_a_mutex_a_leader_and_a_lease_of_one_key_have_one_history(
    operator: Client, name: str
) -> None:
    recorded("key")
    recorded("%leader:key")
    assert markup(operator.get(address(name))).count("data-event") == 2


@pytest.mark.usefixtures("kept")
def test_missing_events_are_shown_for_every_lock(operator: Client) -> None:
    recorded("", "dropped", detail="37", waited=None, held_for=None)
    assert "events are missing 37" in said(operator.get(address("key")))


@pytest.mark.usefixtures("kept")
def test_the_last_fifty_are_shown_with_the_address_of_all(operator: Client) -> None:
    for number in range(60):
        recorded(at=time.time() - number)
    page = markup(operator.get(address("key")))
    assert page.count("data-event") == 50
    assert f'href="{EVENTS}?using__exact=default&amp;name__exact=key"' in page
    listed = operator.get(EVENTS, {"using__exact": "default", "name__exact": "key"})
    assert "60 history" in said(listed)


@pytest.mark.usefixtures("kept")
def test_a_live_page_gets_new_events(operator: Client) -> None:
    first = operator.get(address("key", _fragment=1))
    assert "No event of this lock is recorded." in said(first)
    same = operator.get(address("key", _fragment=1), headers={"If-None-Match": first["ETag"]})
    recorded()
    after = operator.get(address("key", _fragment=1), headers={"If-None-Match": first["ETag"]})
    assert "data-event" in markup(after)
    assert same.status_code in {200, 304}  # the latency of the session may have changed


@pytest.mark.usefixtures("kept")
def test_a_missing_table_is_named_and_the_page_is_there(operator: Client) -> None:
    with hidden_table():
        page = operator.get(address("key"))
    assert page.status_code == 200
    assert "The history cannot be read. Is its table there? Run manage.py migrate" in said(page)


@contextmanager
def hidden_table() -> Iterator[None]:
    """Renames the table: a schema editor would not, within a test's transaction."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE distlock_lockevent RENAME TO hidden")
        try:
            yield
        finally:
            cursor.execute("ALTER TABLE hidden RENAME TO distlock_lockevent")


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


@pytest.mark.usefixtures("kept")
def test_a_page_reads_the_history_with_one_query(
    operator: Client, django_assert_max_num_queries: Callable[..., Any], make_owner: MakeOwner
) -> None:
    owner = make_owner()
    owner.now(zk_lock("key").acquire)
    for _ in range(10):
        recorded()
    with django_assert_max_num_queries(9) as queries:
        operator.get(address("key"))
    found = [one["sql"] for one in queries.captured_queries if "lockevent" in one["sql"]]
    assert len(found) == 1
    owner.now(zk_lock("key").release)
