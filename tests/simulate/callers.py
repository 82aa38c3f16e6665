"""Callers: threads that take locks, hold them for a while, and release them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from distlock.contenders.batch import BatchMember
from distlock.contenders.contender import QueuedContender
from distlock.contenders.grant import Grant
from distlock.contenders.semaphore import SemaphoreContender
from distlock.contenders.waiting import Attempt
from distlock.engine.errors import NoNode
from distlock.exceptions import DistlockError
from distlock.queue.policies import MUTEX, READER, UNFAIR, WRITER
from distlock.queue.semaphore import Limit

from .judge import OVERRUN, Judge, Wait
from .world import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from random import Random

    from .process import Process
    from .world import Steps, Thread


class Line(NamedTuple):
    """What callers want, and in which ways they ask for it.

    :ivar limit: of a semaphore, or 0
    """

    name: str
    kinds: tuple[str, ...]
    limit: int = 0


LINES = (
    Line("mutex", ("mutex",)),
    Line("mixed", ("mutex", "mutex", "batch", "unfair")),
    Line("batch", ("batch",)),
    Line("prices", ("reader", "reader", "writer")),
    Line("seats", ("permits",), 2),
)


class Torn(BaseException):
    """A soft time limit, or Ctrl-C."""


class Caller:
    """A thread that takes locks until a time.

    :param pace: the longest pause between two calls, in seconds
    """

    def __init__(
        self,
        process: Process,
        number: int,
        judge: Judge,
        lines: list[Line],
        random: Random,
        *,
        until: float,
        pace: float,
        longest: float = 0.0,
        haste: float = 1.0,
    ) -> None:
        self.process = process
        self.judge = judge
        self.lines = lines
        self.random = random
        self.until = until
        self.pace = pace
        #: The longest hold, in seconds, and how much shorter most are.
        self.longest, self.haste = longest, haste
        #: Whether it waits, so that an exception may land there.
        self.waits = False
        self._waits: list[Wait] = []
        self.thread: Thread = process.spawn(f"caller{number}", self._run())

    def _run(self) -> Steps:
        random, world = self.random, self.process.world
        yield random.uniform(0, self.pace)
        while world.time < self.until:
            line = random.choice(self.lines)
            timeout = random.choice((0.0, 0.3, 3.0, 10.0, 10.0, None))
            yield from self.call(line, timeout)
            yield random.random() ** 3 * self.pace

    def call(self, line: Line, timeout: float | None) -> Generator[float | None, None, bool]:
        """Take a lock, hold it, and release it; return whether it got it."""
        process, world = self.process, self.process.world
        kind = self.random.choice(line.kinds)
        self.judge.check_rest(process)
        world.say(self.thread, "wants", line.name, "as", kind, "within", timeout)
        make = partial(self._contender, line, kind, try_only=timeout == 0)
        attempt: Attempt[Any] = Attempt(make, timeout)
        began, still = world.time, process.stood_still()
        node = None
        try:
            self.waits = True
            node = yield from attempt.steps(Attempt.outcome, self.thread.wake)
        except DistlockError as error:
            world.say(self.thread, "is refused:", type(error).__name__)
        except Torn:
            world.say(self.thread, "is torn")
        self.waits = False
        lasted = (world.time - began - (process.stood_still() - still)) * process.rate
        if timeout is not None and lasted > timeout + OVERRUN:
            raise Violation(f"{self.thread} waited {lasted:.2f} s, not {timeout} s")
        if node is not None:
            yield from self._hold(attempt.contender, node)
        attempt.give_up()
        for wait in self._waits:
            self.judge.remove(wait)
        self._waits.clear()
        return node is not None

    def _hold(self, contender: Any, node: Any) -> Steps:
        random, world, judge = self.random, self.process.world, self.judge
        world.say(self.thread, "holds", node.name[-10:], "token", node.token)
        for grant in getattr(contender, "permits", [contender]):
            grant.listen(lambda _: None)
        session = self.process.session
        seconds = random.random() ** self.haste * self.longest
        if random.random() < 0.15 and isinstance(contender, QueuedContender):
            contender.give_up_after(random.uniform(0, 2))
            if random.random() < 0.3 and self.longest > 0:
                yield from self._overstay(contender)
        while seconds > 0 and world.time < self.until and not contender.lost:
            step = min(seconds, random.uniform(0.05, 1.0))
            yield step
            seconds -= step
            if random.random() < 0.1:
                found: list[Any] = []
                session.verify(
                    f"{contender.path}/{node.name}", lambda *a, found=found: found.append(a)
                )
                yield 0.3
                if found and isinstance(found[0][1], NoNode) and isinstance(contender, Grant):
                    contender.lose()
        if contender.lost:
            world.say(self.thread, "has lost it")
        world.happened("release", self.process)
        contender.leave()
        world.say(self.thread, "releases it")
        judge.look()

    def _overstay(self, contender: QueuedContender) -> Steps:
        """Hold it for longer than allowed: by then its node is gone, if all works."""
        connection, node = self.process.session.connection, contender.node
        yield contender.ends_at - self.process.clock() + 1.0
        server = self.process.client.server_host
        undisturbed = self.judge.faultless and connection == self.process.session.connection
        if undisturbed and node and f"{contender.path}/{node.name}" in server.tree.nodes:
            raise Violation(f"{self.thread} keeps others from {node.name} after its max_hold")

    def _contender(
        self, line: Line, kind: str, *, try_only: bool, settled: Callable[[], None]
    ) -> Any:
        """Make a contender; the judge hears first what it is told."""
        session = self.process.session
        wait: Wait

        def hear() -> None:
            self.judge.settled(wait)
            settled()

        options: dict[str, Any] = {
            "key": line.name,
            "data": b'{"v":1}',
            "settled": hear,
            "try_only": try_only,
        }
        path = f"{session.root}/{line.name}"
        made: Any
        if kind == "permits":
            limit = Limit(line.name, line.limit)
            wanted = self.random.choice((1, 1, line.limit))
            made = SemaphoreContender(session, path, limit=limit, wanted=wanted, **options)
        elif kind == "batch":
            made = BatchMember(session, path, handoff=2, **options)
        else:
            policies = {"mutex": MUTEX, "unfair": UNFAIR, "reader": READER, "writer": WRITER}
            made = QueuedContender(session, path, policy=policies[kind], **options)
        wait = Wait(self.process, line, kind, made)
        self._waits.append(wait)
        self.judge.add(wait)
        return made
