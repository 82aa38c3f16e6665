"""Turns of a batch, handed over by any thread, and others go on before any line.

Each caller and the connection are a thread of their own, and one of them at a time runs a few lines
of `distlock.contenders`. A seed says which, who gives up, and when a node is lost. Nobody is left
without a turn, and nobody has one while another one does.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections import deque
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from distlock.contenders import batch
from distlock.contenders.batch import BatchMember, BatchNode
from tests.kit.engines import first_then_deep
from tests.kit.tools import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

ROOM = str(Path(batch.__file__).parent)
#: How many scenes one test plays.
MANY = 40


class Ended(BaseException):
    """The scene is over."""


class Actor(threading.Thread):
    """A thread that runs on until the next line, each time it is told to."""

    def __init__(self, life: Callable[[Actor], None]) -> None:
        super().__init__(daemon=True)
        self._life = life
        self._go, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self.over = self.ended = False
        self.error: BaseException | None = None
        #: What it waits for.
        self.until: Callable[[], object] = lambda: True

    def run(self) -> None:
        self._go.acquire()
        sys.settrace(self._trace)
        try:
            self._life(self)
        except Ended:
            pass
        except BaseException as error:  # noqa: BLE001 - raised by the test
            self.error = error
        finally:
            sys.settrace(None)
            self.over = True
            self._paused.release()

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(ROOM):
            return None
        if event == "line":
            self.pause()
        return self._trace

    def pause(self, until: Callable[[], object] = lambda: True) -> None:
        """Let others go on, at least until something is true."""
        self.until = until
        if not self.ended:
            self._paused.release()
            self._go.acquire()
        if self.ended:
            raise Ended

    def end(self) -> None:
        """Let it end where it has paused."""
        if self.is_alive():
            self.ended = True
            self._go.release()
            self.join(PATIENCE)

    def step(self) -> None:
        """Run on until it pauses again, or its life is over."""
        self._go.release()
        assert self._paused.acquire(timeout=PATIENCE)
        if self.error is not None:
            raise self.error


class Node:
    """A batch's node that has the lock as soon as it joins, in the order of joining."""

    def __init__(self, line: list[Node], settled: Callable[[], None]) -> None:
        self._line = line
        self._settled = settled
        self.limits: dict[int, int] = {}
        self.node = SimpleNamespace(session_id=1)
        self.granted = self.lost = self.was_in_line = False
        self.error = self.seen_ahead = self.ahead = None
        self.lost_reason = "session"
        self.epoch = 1

    begun, half_over, has_turns = BatchNode.begun, BatchNode.half_over, BatchNode.has_turns

    def join(self) -> None:
        self._line.append(self)
        self._next()

    def leave(self) -> None:
        self._line.remove(self)
        self._next()

    def lose(self) -> None:
        """Be lost, as with the session, once it has been granted."""
        if self.limits and not self.lost:
            self.lost = True
            self._settled()

    def _next(self) -> None:
        if self._line and not self._line[0].granted:
            self._line[0].granted = True
            self._line[0]._settled()


class Scene:
    """Members that wait for turns, of which some give up, and a connection."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.random = random = Random(seed)  # noqa: S311
        self.steps: deque[Callable[[], None]] = deque()
        self.session: Any = SimpleNamespace(
            id=1,
            soon=self.steps.append,
            heartbeat=SimpleNamespace(attend=id, dismiss=id),
            deadline=SimpleNamespace(unbroken=lambda _: True),
            batches={},
        )
        self.line: list[Node] = []
        #: Whether the connection has nothing to do.
        self.idle = False
        self.inside: list[BatchMember] = []
        self.turns: list[tuple[Any, int]] = []
        monkeypatch.setattr(
            BatchMember,
            "new_batch_node",
            lambda _, batch: Node(self.line, partial(self.steps.append, batch.advance)),
        )
        self.limit = random.randint(1, 4)
        self.losses = random.choice((0.0, 0.02, 0.1))
        self.callers = [Actor(self._life) for _ in range(random.randint(2, 5))]
        self.connection = Actor(self._serve)
        self.actors = [*self.callers, self.connection]

    def _serve(self, me: Actor) -> None:
        while True:
            self.idle = True
            me.pause(lambda: self.steps)
            self.idle = False
            self.steps.popleft()()

    def member(self) -> BatchMember:
        """Return a caller's wait, which has not begun."""
        return BatchMember(
            self.session, "/line", handoff=self.limit, key="key", data=b"{}", settled=lambda: None
        )

    def _life(self, me: Actor) -> None:
        for _ in range(2):
            member = self.member()
            member.join()
            if self.random.random() < 0.2:
                me.pause()
            else:
                me.pause(partial(getattr, member, "granted"))
                self._hold(me, member)
            member.leave()

    def _hold(self, me: Actor, member: BatchMember) -> None:
        self.inside.append(member)
        turn = member.batch_node, member.turn
        me.pause()
        assert (member.batch_node, member.turn) == turn
        self.inside.remove(member)
        self.turns.append(turn)

    def members(self) -> list[BatchMember]:
        """Return those who are in line."""
        return [member for batch in self.session.batches.values() for member in batch.line]

    def holders(self) -> list[BatchMember]:
        """Return those who have the lock, and may rely on it."""
        return [one for one in self.inside if not getattr(one.batch_node, "lost", True)]

    def play(self) -> None:
        """Let them run, one line of one of them at a time."""
        for actor in self.actors:
            actor.start()
        try:
            while able := [one for one in self.actors if not one.over and one.until()]:
                actor = self.random.choice(able)
                if self.line and self.random.random() < self.losses:
                    self.line[0].lose()
                for _ in range(self.random.choice((1, 5, 30))):
                    if not actor.over and actor.until():
                        actor.step()
                        assert len(self.holders()) <= 1
        finally:
            for actor in self.actors:
                actor.end()
        assert all(caller.over for caller in self.callers), "somebody waits, and nobody wakes it"
        assert self.idle
        assert len(set(self.turns)) == len(self.turns)
        assert not self.session.batches
        assert not self.line


@pytest.mark.parametrize("first", first_then_deep(range(0, 10 * MANY, MANY)))
def test_each_has_its_turn_alone(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + MANY):
        try:
            Scene(seed, monkeypatch).play()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_a_turn_that_has_begun_stays_on_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may have been stopped just before it reserved one on an earlier node."""
    scene = Scene(0, monkeypatch)
    member, nodes = scene.member(), [Node([], scene.steps.clear) for _ in range(2)]
    for node in nodes:
        member.reserve(node, 1)  # type: ignore[arg-type]
        member.begin()
    assert [bool(node.limits) for node in nodes] == [True, False]
    assert member.turn == 1


def test_who_waits_for_a_turn_was_in_line_also_before_the_next_batch_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or else one whose time is up just then would be told that the server did not answer."""
    scene = Scene(0, monkeypatch)
    scene.limit = 3
    holder, waiter = scene.member(), scene.member()
    for member in (holder, waiter):
        member.join()
        while scene.steps:
            scene.steps.popleft()()
    first: Any = scene.line[0]
    first.was_in_line = True
    scene.line.append(Node(scene.line, lambda: None))  # somebody else is ahead of the next one
    first.lose()
    holder.leave()
    while waiter._node is first:
        scene.steps.popleft()()
    assert not waiter.granted
    assert waiter.was_in_line


@pytest.mark.parametrize("waits", [False, True])
def test_nobody_waits_for_a_thread_that_stands_still_while_it_leaves(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler may have interrupted it there, and want the lock itself."""
    for lines in itertools.count():
        if not stand_still(lines, Scene(0, monkeypatch), waits=waits):
            break


def stand_still(lines: int, scene: Scene, *, waits: bool) -> bool:
    """Stop a holder after so many lines of its release; return False if it has fewer."""
    scene.limit = 3
    members = [scene.member() for _ in range(3)]
    holder, waiter, late = (Actor(partial(stay, member)) for member in members)
    actors = [holder, waiter, late, scene.connection]
    for actor in actors:
        actor.start()
    try:
        run(scene.connection, holder, until=lambda: members[0].granted)
        if waits:
            run(scene.connection, waiter, until=lambda: members[1] in scene.members())
        for _ in range(lines):
            if holder.over:
                return False
            holder.step()
        if members[0].left and not holder.over:
            run(scene.connection, waiter, late, until=lambda: late.over)
    finally:
        for actor in actors:
            actor.end()
    return True


def stay(member: BatchMember, me: Actor) -> None:
    """Wait for a turn, and end it."""
    member.join()
    me.pause(lambda: member.granted)
    member.leave()


def run(*actors: Actor, until: Callable[[], object]) -> None:
    """Let them run, each as far as it can, until something is true."""
    while not until():
        able = [one for one in actors if not one.over and one.until()]
        assert able, "somebody waits, and nobody wakes it"
        for actor in able:
            actor.step()
