"""A signal handler may take locks, wherever it interrupts the code of the main thread.

A handler runs on top of the code that it interrupts, which goes on only when the handler returns.
So no lock that this code holds may be needed for what the handler waits for.
"""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from distlock import LockUnavailable, zk_lock
from distlock.contenders.batch import BatchMember
from distlock.session import registry
from distlock.session.registry import close_sessions, session_for
from distlock.session.session import Session
from distlock.testing import memory_zookeeper
from distlock_chaos.server import ZooKeeper
from tests.fork.tools import heard, program
from tests.interrupts.recipes import RECIPES, block_of, nothing_is_left, parents
from tests.interrupts.technique import PACKAGE, AtLine
from tests.kit.stopwatch import Stopwatch
from tests.kit.tools import PATIENCE, MakeOwner, Tree, await_connection, forgets_all

pytestmark = pytest.mark.deep

#: How long a handler may take: a new connection, and no timeout.
PROMPT_SECONDS = 2.0


@contextmanager
def no_deadlock(seconds: float) -> Iterator[None]:
    """Raise in the main thread when the block takes longer."""

    def stop(*_: object) -> None:
        raise TimeoutError("a deadlock")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def handle_everywhere(
    call: Callable[[], object], within: tuple[str, ...] = (PACKAGE,)
) -> list[str]:
    """Take a lock before each line of a call, and return the lines where that took long."""
    late: list[str] = []

    def handle() -> None:
        started = watch.taken
        with zk_lock("key-of-the-handler", timeout=PROMPT_SECONDS + 1):
            pass
        taken = watch.taken - started
        if taken > PROMPT_SECONDS:
            late.append(f"{handler.landed} {taken:.1f} s")

    with Stopwatch() as watch:
        for step in itertools.count(1):
            handler = AtLine(step, handle, within)
            try:
                with no_deadlock(PATIENCE), handler:
                    call()
            except Exception as failure:
                raise AssertionError(f"handled at {handler.landed}: {failure!r}") from failure
            if not handler.landed:
                assert step > 80
                return late
    raise AssertionError("unreachable")


# With handoff=, the news of a batch may come at any line: see the next test.
@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != "handoff"])
def test_a_handler_before_any_line_takes_a_lock(tree: Tree, recipe: str) -> None:
    parents(tree)
    await_connection()
    call = block_of(recipe)
    call()
    assert not handle_everywhere(call)
    nothing_is_left(tree)


@pytest.mark.usefixtures("tree")
def test_a_handler_takes_a_lock_while_a_batch_has_news(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[bool] = []
    join = BatchMember.join

    def interrupted(member: BatchMember) -> None:
        join(member)
        if not outcomes:
            outcomes.append(False)
            with suppress(LockUnavailable):
                outcomes[0] = zk_lock("key-of-the-handler", timeout=1).acquire()

    await_connection()
    monkeypatch.setattr(BatchMember, "join", interrupted)
    with zk_lock("key", handoff=3, timeout=PATIENCE):
        pass
    zk_lock("key-of-the-handler").release()
    assert outcomes == [True]


def test_a_handler_waits_for_a_lock_before_any_line_of_a_watch(
    tree: Tree, make_owner: MakeOwner
) -> None:
    """The connection thread goes on, and sets the handler's own watch."""
    session, holder, rival = await_connection(), make_owner(), zk_lock("busy", using="other")
    tree.client.ensure_path(tree.path("watched"))
    waited: list[str] = []

    def handle() -> None:
        assert holder.now(rival.acquire)
        waiting = len(tree.line("busy")) + 1
        holder.submit(tree.await_line, "busy", waiting)
        holder.submit(rival.release)
        with zk_lock("busy", timeout=PATIENCE / 4):
            waited.append(handler.landed)

    def call() -> None:
        session.watch(tree.path("watched"), heard.append, lambda *_: None)
        session.unwatch(tree.path("watched"), heard.append)

    heard: list[bool] = []
    for step in itertools.count(1):
        handler = AtLine(step, handle)
        with no_deadlock(PATIENCE), handler:
            call()
        if not handler.landed:
            break
    assert len(waited) == step - 1 > 10
    forgets_all(session)


@pytest.mark.parametrize(
    "within",
    [
        pytest.param(PACKAGE, id="distlock"),
        pytest.param(
            threading.__file__,
            id="threading",
            marks=pytest.mark.xfail(
                reason="Thread.start() holds a lock of Python's that is not reentrant, and the "
                "handler's first use starts a thread, too",
                strict=True,
            ),
        ),
    ],
)
def test_a_handler_before_any_line_of_a_first_use_takes_a_lock(tree: Tree, within: str) -> None:
    """The handler may be faster than the first use, and begin the session for it."""
    parents(tree)
    block = block_of("mutex")

    def first_use() -> None:
        close_sessions()
        block()

    assert not handle_everywhere(first_use, (within,))
    nothing_is_left(tree)


@pytest.mark.parametrize("there", [True, False])
@memory_zookeeper()
def test_a_handler_before_any_line_of_the_registry_begins_a_session(there: bool) -> None:
    """Each session that it ever began is closed at the end, also next to one that was refused."""
    begun: list[Session] = []

    def use() -> None:
        close_sessions()
        if there:
            session_for().close()
        begun.append(session_for())
        close_sessions()

    for step in itertools.count(1):
        handler = AtLine(step, lambda: begun.append(session_for()), (registry.__file__,))
        with handler:
            use()
        close_sessions()
        assert all(one.over for one in begun), handler.landed
        begun.clear()
        if not handler.landed:
            break
    assert step > 30


# Each child gives a lock back, with a handler that takes another one before some line of that, and
# then ends at once.
RELEASES_AND_DIES = """
import itertools
from distlock.engine import serving, wire
from tests.interrupts.technique import AtLine
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, inside

def die(step, handled):
    lock, other = zk_lock(f"key-{step}"), zk_lock(f"other-{step}")
    lock.acquire()

    def handle():
        other.acquire(timeout=PATIENCE)
        client = inside(session_for())
        # What another thread still sends goes first.
        eventually(lambda: not (client._queue or client.steps or client._pending), PATIENCE)
        other.release()
        os.write(handled, handler.landed.encode())

    handler = AtLine(step, handle, (wire.__file__, serving.__file__))
    with handler:
        lock.release()
    os._exit(0)

landed, left = [], []
for step in itertools.count(1):
    reading, writing = os.pipe()
    if os.fork() == 0:
        die(step, writing)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        line = pipe.read()
    os.wait()
    if not line:
        break
    landed.append(line)
    for key in (f"key-{step}", f"other-{step}"):
        lock = zk_lock(key, timeout=3)
        if lock.acquire():
            lock.release()
        else:
            left.append(f"{key} {line}")
tell([landed, left])
"""


def test_a_process_that_ends_after_a_handler_in_a_send_has_sent_both_releases(
    tree: Tree, zookeeper: ZooKeeper
) -> None:
    with program(RELEASES_AND_DIES, zookeeper.hosts, tree.namespace, session_timeout=20) as process:
        landed, left = heard(process)
        process.communicate(timeout=PATIENCE)
    assert len(landed) > 10
    assert not left
