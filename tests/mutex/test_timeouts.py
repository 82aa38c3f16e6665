"""A busy lock is given up on time, and a timeout that is none is refused (promise 7).

A wait that starts again at every wake-up, or at every change of the predecessor, overruns: there is
one deadline, on a monotonic clock.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from distlock import LockBusy, zk_lock
from distlock.session.registry import sessions
from tests.kit.helpers import ANSWER_SECONDS, eventually
from tests.kit.tools import OVERRUN, MakeOwner, Tree, within

if TYPE_CHECKING:
    from pytest_django import Settings

pytestmark = pytest.mark.usefixtures("tree")


@pytest.mark.usefixtures("holder")
@pytest.mark.parametrize("timeout", [0.5, timedelta(seconds=0.5)])
def test_a_wait_ends_when_its_time_is_up_and_not_before(timeout: float | timedelta) -> None:
    started = time.monotonic()
    with within(0.5 + OVERRUN):
        assert zk_lock("key").acquire(timeout=timeout) is False
    assert time.monotonic() - started >= 0.5


@pytest.mark.usefixtures("holder")
def test_a_short_wait_is_short_when_the_server_answers() -> None:
    assert zk_lock("elsewhere").acquire()  # the session is there already
    zk_lock("elsewhere").release()
    with within(ANSWER_SECONDS / 3):
        assert zk_lock("key").acquire(timeout=0.05) is False


@pytest.mark.usefixtures("holder")
@pytest.mark.parametrize("how", [{"timeout": 0}, {"blocking": False}])
def test_a_try_does_not_wait(how: dict[str, Any]) -> None:
    with within(OVERRUN):
        assert zk_lock("key").acquire(**how) is False


@pytest.mark.usefixtures("holder")
@pytest.mark.parametrize("timeout", [9, None])
def test_not_blocking_wins_over_a_timeout(timeout: float | None) -> None:
    with within(OVERRUN):
        assert zk_lock("key").acquire(blocking=False, timeout=timeout) is False


@pytest.mark.usefixtures("holder")
def test_the_timeout_of_a_call_comes_before_that_of_the_lock_and_that_before_the_setting() -> None:
    with within(OVERRUN):
        assert not zk_lock("key", timeout=60).acquire(timeout=0)
    with within(OVERRUN), pytest.raises(LockBusy), zk_lock("key", timeout=0):
        pass


def test_the_setting_is_the_timeout_of_a_call_that_says_none(
    two_sessions: Settings, make_owner: MakeOwner
) -> None:
    default = {**two_sessions.DISTLOCK["default"], "TIMEOUT": 0.3}
    two_sessions.DISTLOCK = {"default": default}
    holder = make_owner()
    holder.now(zk_lock("key").acquire)
    started = time.monotonic()
    with within(0.3 + OVERRUN):
        assert not zk_lock("key").acquire()
    assert time.monotonic() - started >= 0.3
    holder.now(zk_lock("key").release)


@pytest.mark.usefixtures("holder")
def test_changes_ahead_do_not_start_the_time_anew(tree: Tree, make_owner: MakeOwner) -> None:
    quitters = [make_owner() for _ in range(4)]
    for place, quitter in enumerate(quitters, start=2):
        quitter.submit(zk_lock("key", using="other").acquire, timeout=4.5 - place * 0.5)
        tree.await_line("key", place)
    with within(4 + OVERRUN):
        assert zk_lock("key").acquire(timeout=4) is False
    tree.await_line("key", 1)


@pytest.mark.parametrize(("timeout", "error"), [(-1, ValueError), ("5", TypeError)])
def test_what_is_no_timeout_is_refused_before_anything_is_sent(
    timeout: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match="timeout"):
        zk_lock("key", timeout=timeout)
    with pytest.raises(error, match="timeout"):
        zk_lock("key").acquire(timeout=timeout)
    with pytest.raises(error, match="timeout"):
        zk_lock("key").acquire(blocking=False, timeout=timeout)
    assert not sessions()


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(("timeout", "error"), [(-1, ValueError), ("5", TypeError)])
def test_what_is_no_timeout_is_refused_on_reentry_too(timeout: Any, error: type[Exception]) -> None:
    with zk_lock("key") as hold:
        with pytest.raises(error, match="timeout"):
            zk_lock("key").acquire(timeout=timeout)
        hold.check()
    assert not zk_lock("key").held


def test_infinity_waits_for_ever_like_none() -> None:
    assert zk_lock("key").acquire(timeout=float("inf"))
    zk_lock("key").release()


def test_a_short_timeout_gets_a_free_lock(tree: Tree) -> None:
    for _ in range(20):
        assert zk_lock("key").acquire(timeout=0.001)
        zk_lock("key").release()
        eventually(lambda: not tree.line("key"))
