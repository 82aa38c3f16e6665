"""Where the site has waited: the counts and the slowest keys above the list of locks."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

import pytest
from django.db import connection
from django.test import Client

from distlock import minutes, zk_leader, zk_lock
from distlock.admin import last_hour, model_admin
from distlock.inspection.tree import snapshot
from distlock.signals import BUCKETS
from tests.admin.test_history import EVENTS, recorded
from tests.admin.tools import LIST, address, keys, markup, said
from tests.kit.helpers import eventually
from tests.kit.losses import SetOptions
from tests.kit.tools import PATIENCE, MakeOwner

pytestmark = pytest.mark.usefixtures("tree")


@pytest.fixture(autouse=True)
def kept(set_options: SetOptions, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A history is kept, of which nothing was read, and the minute stays the same."""
    set_options(HISTORY=1000)
    monkeypatch.setattr(last_hour, "time", SimpleNamespace(time=partial(float, time.time())))
    last_hour._read.cache_clear()
    yield
    last_hour._read.cache_clear()


def count(template: str, ago: int = 1, using: str = "default", **kinds: dict[float, int]) -> None:
    """Write counts of a minute: of each kind, by the upper bound of their bucket."""
    now = int(last_hour.time.time()) // 60  # type: ignore[attr-defined]  # the frozen one
    for kind, histogram in kinds.items():
        for bound, number in histogram.items():
            key = (now - ago, using, template, kind, BUCKETS.index(bound))
            minutes.write({key: number}, "default")


def bars(page: str) -> list[str]:
    """The sparklines, from top to bottom."""
    return re.findall(r'<path d="((?:M\d+\.5 16v-\d+)+)"/>', page)


# --- counts --------------------------------------------------------------------------------------


def test_templates_are_in_the_order_of_their_waits_with_a_trend(operator: Client) -> None:
    count("fast:<id>", wait={0.005: 100}, hold={0.05: 100})
    count("slow:<id>", ago=3, wait={0.005: 50, 10.0: 50})
    count("slow:<id>", ago=30, wait={0.005: 100})
    count("", ago=50, wait={0.1: 1})
    count("older:<id>", ago=70, wait={60.0: 1})
    count("other:<id>", using="other", wait={60.0: 1})
    page = operator.get(LIST)
    text = said(page)
    assert re.search(r"slow:<id> p95 wait 9\.0 s .*without a template .*fast:<id> p95", text)
    assert "fast:<id> p95 wait 5 ms , up to 5 ms at" in text
    assert "usually held 38 ms · 100 acquires" in text
    assert "older:" not in text
    assert "other:" not in text
    assert '<a href="?q=slow%3A">slow:&lt;id&gt;</a>' in markup(page)
    assert bars(markup(page)) == ["M30.5 16v-1M57.5 16v-11", "M10.5 16v-5", "M59.5 16v-1"]


def test_the_span_is_chosen_in_the_address(operator: Client) -> None:
    count("now:<id>", wait={0.005: 1})
    count("before:<id>", ago=30, wait={0.005: 1})
    count("long:<id>", ago=20 * 60, wait={0.005: 1})
    shown = {
        span: set(re.findall(r"(\w+):<id> p95", said(operator.get(f"{LIST}?span={span}"))))
        for span in ("15", "60", "1440", "nonsense")
    }
    hour = {"now", "before"}
    assert shown == {"15": {"now"}, "60": hour, "1440": {*hour, "long"}, "nonsense": hour}
    page = markup(operator.get(f"{LIST}?span=15&o=key"))
    assert 'href="?span=1440&amp;o=key"' in page
    assert '<input type="hidden" name="span" value="15">' in page
    assert len(bars(markup(operator.get(f"{LIST}?span=1440")))) == 3


def test_what_was_in_vain_is_named_where_it_was_most(operator: Client) -> None:
    count("a:<id>", wait={0.005: 3}, busy={0.005: 3}, deadlock={0.005: 1})
    count("b:<id>", wait={0.005: 9}, busy={0.005: 9}, broken={0.005: 1})
    count("c:<id>", wait={0.005: 9})
    text = said(operator.get(LIST)).partition("In vain")[2]
    assert "b:<id> waited in vain: 9 · broken: 1 a:<id>" in text
    assert "a:<id> waited in vain: 3 · gave way in a deadlock: 1" in text
    assert "c:<id>" not in text


def test_the_keys_that_were_waited_for_longest_are_linked_to_their_history(
    operator: Client,
) -> None:
    recorded("stock:1", waited=2.0)
    recorded("stock:1", "busy", waited=3.0)
    recorded("stock:2", waited=4.0)
    recorded("brief", waited=0.01)
    recorded("before", waited=100.0, at=time.time() - 4000)
    page = operator.get(LIST)
    text = said(page).partition("Keys that were waited for longest")[2]
    assert "stock:1 5.0 s in 2 events, up to 3.0 s stock:2 4.0 s in 1 event, up to 4.0 s" in text
    assert "brief" not in text
    assert "before" not in text
    assert f'href="{EVENTS}?using__exact=default&amp;name__exact=stock%3A1"' in markup(page)


def test_polls_within_some_seconds_ask_the_database_once(operator: Client) -> None:
    count("now:<id>", wait={0.005: 1})
    fragment = f"{LIST}?_fragment=1"
    first = operator.get(fragment)
    assert "now:<id>" in said(first)
    assert 'id="distlock-last-hour"' in markup(first)
    count("later:<id>", wait={0.005: 1})
    assert "later" not in said(operator.get(fragment))
    last_hour._read.cache_clear()
    assert "later" in said(operator.get(fragment))


def test_without_a_history_the_page_names_the_setting(
    operator: Client, set_options: SetOptions
) -> None:
    set_options(HISTORY=0)
    assert "With the setting HISTORY you see here" in said(operator.get(LIST))


def test_without_its_table_the_page_shows_the_locks_and_says_what_to_do(operator: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE distlock_lockminute")
    with zk_lock("stock:1"):
        page = operator.get(LIST)
    assert keys(page) == ["stock:1"]
    assert "Run manage.py migrate distlock ." in said(page)


def has_waited(key: str) -> bool:
    return any(lock.key == key and lock.longest_wait for lock in snapshot().locks)


# --- now -----------------------------------------------------------------------------------------


def test_all_is_calm_until_a_lock_has_been_waited_for_long(
    operator: Client, make_owner: MakeOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_admin, "LATE", 0)
    rival, candidate = make_owner(), make_owner()
    with zk_leader("a leader"):
        standby = candidate.submit(zk_leader("a leader").acquire)
        eventually(lambda: has_waited("a leader"), PATIENCE)
        with zk_lock("stock:1"):
            assert "All calm" in said(operator.get(LIST))
            waiting = rival.submit(zk_lock("stock:1", timeout=PATIENCE).acquire)
            eventually(lambda: has_waited("stock:1"), PATIENCE)
            page = operator.get(LIST)
            assert "A lock has been waited for longer than 0 s: stock:1" in said(page)
            assert f'<a href="{address("stock:1")}">stock:1</a>' in markup(page)
            assert "All calm" not in said(page)
            searched = operator.get(f"{LIST}?q=other")
            assert "All calm" not in said(searched)
        assert waiting.result(PATIENCE)
        rival.now(zk_lock("stock:1").release)
    assert standby.result(PATIENCE)
    candidate.now(zk_leader("a leader").release)
