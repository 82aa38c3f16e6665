"""What became of a lock in this process in the last minutes: counted, bounded, shown."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from django.core.signals import request_started
from django.template.loader import render_to_string
from django.utils import translation
from hypothesis import given
from hypothesis import strategies as st

from distlock import signals, zk_lock, zk_semaphore
from distlock.admin import history
from distlock.admin.history import BUCKET_SECONDS, BUCKETS, KEYS, Bucket
from distlock.keys import templates
from tests.kit.helpers import eventually, spawn_python
from tests.kit.tools import PATIENCE, MakeOwner, Tree
from tests.testproject.templates import TEMPLATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import Settings

KEY = "stock:42"


@pytest.fixture(autouse=True)
def _looking(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has just begun to look."""
    monkeypatch.setattr(history, "_rows", OrderedDict())
    monkeypatch.setattr(history, "_begun_at", None)
    history._begin()
    yield
    for signal in history._RECEIVERS:
        signal.disconnect(dispatch_uid=history._WHO)
    history._begun_at = None
    history.connect()


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(history, "monotonic", clock)
    return clock


def used(key: str = KEY, *, using: str = "default", waited: float = 0, held: float = 0) -> None:
    about: Any = type("Subject", (), {"key": key, "using": using, "template": ""})
    signals.announce(signals.lock_acquired, object, about, hold=None, waited=waited)
    signals.announce(signals.lock_released, object, about, hold=None, held_for=held)


# --- what is counted -----------------------------------------------------------------------------


@pytest.mark.usefixtures("tree")
def test_holds_are_counted_once_however_often_they_are_entered() -> None:
    lock = zk_lock(KEY)
    with lock, lock:
        pass
    with lock:
        pass
    found = history.of(KEY)
    assert (found.total.holds, found.total.busy, found.total.lost) == (2, 0, 0)
    assert found.total.longest_hold > 0
    assert found.buckets[-1].holds + found.buckets[-2].holds == 2


@pytest.mark.usefixtures("tree")
def test_who_gives_up_is_counted_with_the_wait(make_owner: MakeOwner) -> None:
    lock, owner = zk_lock(KEY), make_owner()
    owner.now(lock.acquire)
    assert not lock.acquire(timeout=0.2)
    owner.now(lock.release)
    found = history.of(KEY).total
    assert (found.holds, found.busy) == (1, 1)
    assert found.longest_wait >= 0.2
    assert found.mean_wait == pytest.approx(found.waited / 2)


def test_a_lost_hold_is_counted(tree: Tree) -> None:
    lock = zk_lock(KEY)
    lock.acquire()
    tree.client.delete(lock.participants()[0].path)
    eventually(lambda: history.of(KEY).total.lost == 1, PATIENCE)


@pytest.mark.usefixtures("tree")
def test_leases_of_a_semaphore_are_holds() -> None:
    with zk_semaphore(KEY, 2), zk_semaphore(KEY, 2):
        pass
    assert history.of(KEY).total.holds == 2


@pytest.mark.usefixtures("tree")
def test_each_alias_has_its_own() -> None:
    with zk_lock(KEY, using="other"):
        pass
    assert not history.of(KEY)
    assert history.of(KEY, "other").total.holds == 1


def test_of_a_lock_nobody_has_used_there_is_an_empty_history() -> None:
    found = history.of(KEY)
    assert not found
    assert found.buckets == (Bucket(),) * BUCKETS
    assert found.uses.highest == found.waits.highest == found.total.mean_wait == 0


@pytest.mark.parametrize(
    "key", ["a/b", "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "x" * 5_000, "%"], ids=range(4)
)
def test_a_lock_is_found_by_its_key_and_by_its_name_in_the_tree(key: str) -> None:
    used(key)
    name = templates.znode_name(key)
    for text in (key, name, f"%leader:{name}", f"@leases/{name}"):
        assert history.of(text).total.holds == 1


# --- the window ----------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.floats(0, 3 * BUCKET_SECONDS) | st.floats(0, 1_000),
            st.floats(0, 1_000),
            st.floats(0, 1_000),
        )
    )
)
def test_buckets_tell_what_happened_in_the_last_ten_minutes(
    uses: list[tuple[float, float, float]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr(history, "monotonic", clock)
        patch.setattr(history, "_rows", OrderedDict())
        seen = []
        for pause, waited, held in uses:
            clock.now += pause
            used(waited=waited, held=held)
            seen.append((clock.now // BUCKET_SECONDS, waited, held))
        found = history.of(KEY)
        last = clock.now // BUCKET_SECONDS
        for back, bucket in enumerate(reversed(found.buckets)):
            here = [(waited, held) for number, waited, held in seen if number == last - back]
            waits = [waited for waited, _ in here]
            assert bucket.holds == len(here)
            assert bucket.waited == pytest.approx(sum(waits))
            assert bucket.longest_wait == max(waits, default=0)
            assert bucket.longest_hold == max((held for _, held in here), default=0)
        assert found.total.holds == sum(number > last - BUCKETS for number, *_ in seen)


def test_what_is_older_than_the_window_is_gone(clock: Clock) -> None:
    used()
    clock.now += BUCKETS * BUCKET_SECONDS
    assert not history.of(KEY)


def test_it_says_for_how_long_it_has_looked(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_begun_at", clock.now)
    clock.now += 61
    assert (history.of(KEY).seconds, history.of(KEY).minutes) == (61, 2)
    clock.now += 10_000
    assert (history.of(KEY).seconds, history.of(KEY).minutes) == (600, 10)


def test_memory_is_bounded_and_the_keys_used_last_are_kept(clock: Clock) -> None:
    for number in range(KEYS):
        used(f"key:{number}")
    used("key:0")
    used("one more")
    assert len(history._rows) == KEYS
    assert history.of("key:0")
    assert history.of("one more")
    assert not history.of("key:1")
    for _ in range(2 * BUCKETS):
        clock.now += BUCKET_SECONDS
        used()
    assert {len(rows) for rows in history._rows.values()} == {1, BUCKETS}


# --- threads, signal handlers, processes ---------------------------------------------------------


def test_nothing_is_lost_between_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()

    def monotonic() -> float:
        now = next(ticks) * BUCKET_SECONDS / 20
        time.sleep(0)  # another thread's turn
        return now

    monkeypatch.setattr(history, "monotonic", monotonic)

    def work() -> None:
        for _ in range(60):
            used()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert history.of(KEY).total.holds == 240


def test_a_signal_handler_that_uses_a_lock_may_interrupt_a_receiver() -> None:
    def interrupted() -> None:
        with history._lock:
            used()

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert history.of(KEY).total.holds == 1


FORK = """
import os, threading
import django; django.setup()
from django.core.signals import request_started
from distlock.admin import history
from tests.history.test_history import used

request_started.send(None)
used()
held, done = threading.Event(), threading.Event()

def hold():
    with history._lock:
        held.set()
        done.wait()

threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if not child:
    print(history.of("stock:42").total.holds, flush=True)
    used()
    print(history.of("stock:42").total.holds, flush=True)
    os._exit(0)
os.waitpid(child, 0)
done.set()
print(history.of("stock:42").total.holds)
"""


def test_a_child_begins_with_nothing_and_leaves_the_parents_alone() -> None:
    with spawn_python(FORK) as process:
        out, err = process.communicate(timeout=60)
    assert out.split() == ["0", "1", "1"], err


# --- when it is kept -----------------------------------------------------------------------------

FIRST_REQUEST = """
import sys
import django
from django.conf import settings
apps = sys.argv[1].split(",")
settings.configure(INSTALLED_APPS=apps, DISTLOCK={"default": {}})
django.setup()
from django.apps import apps
from django.core.signals import request_started
from distlock import signals
def connected():
    ids = [one[0][0] for one in signals.lock_acquired.receivers]
    return ids.count("distlock.history")
print(connected())
request_started.send(None)
print(connected())
apps.get_app_config("distlock").ready()
request_started.send(None)
print(connected())
"""
ADMIN = "django.contrib.admin,django.contrib.auth,django.contrib.contenttypes,distlock"


@pytest.mark.parametrize(
    ("apps", "counts"), [(ADMIN, ["0", "1", "1"]), ("distlock", ["0", "0", "0"])], ids=["yes", "no"]
)
def test_it_begins_with_the_first_request_of_a_site_with_an_admin(
    apps: str, counts: list[str]
) -> None:
    with spawn_python(FIRST_REQUEST, apps) as process:
        out, err = process.communicate(timeout=60)
    assert out.split() == counts, err


@pytest.mark.django_db  # Django looks after its connections, too, when a request begins
def test_it_begins_once() -> None:
    begun = history._begun_at
    history.connect()
    request_started.send(None)
    assert history._begun_at == begun
    used()
    assert history.of(KEY).total.holds == 1


# --- how it is shown -----------------------------------------------------------------------------


@pytest.fixture
def _templates(settings: Settings) -> None:
    settings.TEMPLATES = TEMPLATES


@pytest.mark.usefixtures("_templates")
def test_it_is_shown_in_words_and_as_lines(clock: Clock) -> None:
    used(waited=1.5, held=3.25)
    clock.now += 30
    page = render_to_string("distlock/history.html", {"history": history.of(KEY)})
    assert "Events of this process" in page
    assert page.count("<polyline") == 2
    assert 'aria-label="Line: how often it was acquired in each 10 seconds. At most 1' in page
    assert 'aria-label="Line: the longest wait in each 10 seconds. At most 1.50 s' in page
    assert "<dd>3.25 s</dd>" in page
    assert "style=" not in page


@pytest.mark.usefixtures("_templates")
def test_of_an_unused_lock_it_says_so() -> None:
    page = render_to_string("distlock/history.html", {"history": history.of(KEY)})
    assert "This process has not used the lock" in page
    assert "<svg" not in page


@pytest.mark.usefixtures("_templates")
def test_the_lines_are_the_same_in_every_language(settings: Settings) -> None:
    settings.USE_THOUSAND_SEPARATOR = True
    used(waited=1234.5)

    def points() -> list[str]:
        page = render_to_string("distlock/history.html", {"history": history.of(KEY)})
        return [line for line in page.splitlines() if "points=" in line or "<svg" in line]

    drawn = [line.partition(" role=")[0] for line in points()]
    with translation.override("de"):
        assert [line.partition(" role=")[0] for line in points()] == drawn
