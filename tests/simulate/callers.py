"""Callers: threads and tasks that take locks, hold them for a while, and release them.

They use what users use. A caller is written once: `Block` and `Caller.do` enter a lock as blocking
code does, or as a task does.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import AsyncExitStack, contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from distlock import zk_leader, zk_lease, zk_lock, zk_rwlock, zk_semaphore
from distlock.exceptions import DistlockError, LockUnavailable

from .judge import OVERRUN, Judge
from .world import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from .process import Process
    from .world import Thread


class Line(NamedTuple):
    """What callers want, and in which ways they ask for it: each is a method of `Caller`.

    :ivar limit: of a semaphore, or 0
    :ivar where: the path under the namespace
    """

    name: str
    kinds: tuple[str, ...]
    limit: int = 0
    where: str = ""

    @property
    def in_line(self) -> bool:
        """Whether its nodes stand in a line, from which an operator may remove some."""
        return not (self.limit or self.where.startswith("@"))


LINES = (
    Line("mutex", ("mutex",), where="mutex"),
    Line("mixed", ("mutex", "mutex", "batch", "unfair"), where="mixed"),
    Line("batch", ("batch",), where="batch"),
    Line("prices", ("reader", "reader", "writer", "downgrade"), where="prices"),
    Line("seats", ("permit", "permit", "permits"), 2),
    Line("report", ("lease", "lease", "job"), where="@leases/report"),
    Line("beat", ("candidate", "leader"), where="%leader:beat"),
)
#: The caller that runs now.
CALLER: ContextVar[Caller] = ContextVar("caller")


class Torn(BaseException):
    """A soft time limit, or Ctrl-C."""


class Caller:
    """A thread, or a task, that takes locks until a time.

    :param pace: the longest pause between two calls, in seconds
    :param longest: the longest hold, in seconds
    :param haste: how much shorter most are
    :param task: whether it is a task of an event loop
    """

    def __init__(
        self,
        process: Process,
        name: str,
        judge: Judge,
        lines: list[Line],
        random: Random,
        *,
        until: float,
        pace: float,
        longest: float,
        haste: float,
        task: bool = False,
    ) -> None:
        self.process = process
        self.name = f"{process} {name}"
        self.judge = judge
        self.lines = lines
        self.random = random
        self.until = until
        self.pace = pace
        self.longest, self.haste = longest, haste
        #: Whether an exception may land in its waits.
        self.calls = False
        self.over = False
        #: What it wants, in which way and since when; None while it has it, or wants nothing.
        self.wants: tuple[Line, str, float] | None = None
        self.connected = False
        self._got = False
        self.thread: Thread
        #: The one that it has asked for last.
        self.lock: Any = None
        self.task: asyncio.Task[Any] | None = None
        self._is_task = task

    def __str__(self) -> str:
        return self.name

    async def run(self) -> None:
        """Call again and again."""
        random, world = self.random, self.process.world
        await self.pause(random.uniform(0, self.pace))
        while world.time < self.until:
            line = random.choice(self.lines)
            timeout = random.choice((0.0, 0.3, 3.0, 10.0, 10.0, None))
            await self.call(line, timeout)
            await self.pause(random.random() ** 3 * self.pace)
        self.over = True

    async def call(self, line: Line, timeout: float | None, kind: str = "") -> bool:
        """Take a lock, hold it, and release it; return whether it got it."""
        CALLER.set(self)
        world, process = self.process.world, self.process
        self.thread = world.thread
        self.task = asyncio.current_task() if self._is_task else None
        kind = kind or self.random.choice(line.kinds)
        if kind == "leader" and self._is_task:
            kind = "candidate"
        self.judge.check_rest(process)
        world.say(self, "wants", line.name, "as", kind, "within", timeout)
        self._got = False
        self.connected = process.session.connected
        self.wants = line, kind, world.time
        self.calls = True
        try:
            await getattr(self, f"_{kind}")(line, timeout)
        except DistlockError as error:
            world.say(self, "is refused:", type(error).__name__)
        except (Torn, asyncio.CancelledError):
            if world.over:
                raise
            world.say(self, "is torn")
        self.calls = False
        self.wants = None
        self.judge.end_of_call(self)
        return self._got

    def tear(self) -> None:
        """Let an exception land in its wait."""
        if not self.calls:
            return
        if self.task is not None:
            loop = self.task.get_loop()
            self.process.now("main", self._let_cancel, loop, self.task)
        else:
            self.thread.throw(Torn(), lambda: self.calls)

    def _let_cancel(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        if self.calls:  # or the loop may be closed by now
            loop.call_soon_threadsafe(self._cancel, task)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        if self.calls:
            task.cancel()

    # --- what differs between threads and tasks --------------------------------------------------

    async def pause(self, seconds: float) -> None:
        if self._is_task:
            await asyncio.sleep(seconds)
            return
        until = self.process.clock() + seconds
        while (rest := until - self.process.clock()) > 0:
            self.process.world.thread.wait(rest)

    async def do(self, lock: Any, name: str, *args: Any, **how: Any) -> Any:
        """Call a method of a lock, or the one for tasks."""
        if not self._is_task:
            return getattr(lock, name)(*args, **how)
        other = name.replace("__e", "__ae") if name.startswith("__") else f"a{name}"
        return await getattr(lock, other)(*args, **how)

    # --- kinds -----------------------------------------------------------------------------------

    def _options(self, timeout: float | None) -> dict[str, Any]:
        return {"using": self.process.alias, "timeout": timeout}

    async def _mutex(self, line: Line, timeout: float | None, **how: Any) -> None:
        random = self.random
        max_hold = random.uniform(0.05, 2) if random.random() < 0.15 else None
        lock = zk_lock(line.name, max_hold=max_hold, **how, **self._options(timeout))
        async with Block(self, lock, timeout) as hold:
            if max_hold is not None and random.random() < 0.3 and self.longest > 0:
                await self._overstay(hold, max_hold)
            await self._work(hold)

    async def _unfair(self, line: Line, timeout: float | None) -> None:
        await self._mutex(line, timeout, fair=False)

    async def _batch(self, line: Line, timeout: float | None) -> None:
        await self._mutex(line, timeout, handoff=2)

    async def _reader(self, line: Line, timeout: float | None) -> None:
        await self._in_block(zk_rwlock(line.name, **self._options(timeout)).read, timeout)

    async def _writer(self, line: Line, timeout: float | None) -> None:
        await self._in_block(zk_rwlock(line.name, **self._options(timeout)).write, timeout)

    async def _downgrade(self, line: Line, timeout: float | None) -> None:
        lock = zk_rwlock(line.name, **self._options(timeout))
        async with AsyncExitStack() as stack:
            async with Block(self, lock.write, timeout) as hold:
                await self._work(hold)
                reading: Any = await stack.enter_async_context(Block(self, lock.read, timeout))
            await self._work(reading)

    async def _permit(self, line: Line, timeout: float | None) -> None:
        await self._in_block(zk_semaphore(line.name, line.limit, **self._options(timeout)), timeout)

    async def _permits(self, line: Line, timeout: float | None) -> None:
        lock = zk_semaphore(line.name, line.limit, **self._options(timeout))
        self.lock = lock
        with self._in_time(timeout):
            if not await self.do(lock, "acquire", leases=line.limit):
                return
        if self.process.dead:
            return  # since the grant: the judge has forgotten its hold
        try:
            await self._work(self.judge.hold_of(self))
        finally:
            await self.do(lock, "release", line.limit)

    async def _lease(self, line: Line, timeout: float | None, owner: str = "") -> None:
        ttl = self.random.uniform(0.5, 6.0)
        lease = zk_lease(line.name, ttl, owner=owner or self.name, **self._options(timeout))
        if self.process.session.connected:
            self.process.looked_at = self.process.looked_at or self.process.world.time
        block = Block(self, lease, timeout)
        async with block as hold:
            await self._work(hold, lease)
            self.judge.give_up(hold)

    async def _job(self, line: Line, timeout: float | None) -> None:
        """Take a lease of which other processes know the owner, too."""
        await self._lease(line, timeout, "job")

    async def _candidate(self, line: Line, timeout: float | None) -> None:
        await self._in_block(zk_leader(line.name, **self._options(timeout)), timeout)

    async def _leader(self, line: Line, timeout: float | None) -> None:
        """Lead again and again until somebody stops that."""
        process, random = self.process, self.random
        leader = zk_leader(line.name, using=process.alias)
        stopped: list[float] = []

        def stop() -> None:
            stopped.append(self._spent())
            leader.stop()

        def work(hold: Any) -> None:
            self._gets(hold)
            while leader.stay(random.random()) and random.random() < 0.8:
                pass

        process.after(random.uniform(0, 2 * self.longest + 1), "main", stop)
        leader.run(work)
        if (late := self._spent() - stopped[0]) > OVERRUN:
            raise Violation(f"{self} leads {late:.2f} s after stop()")

    async def _in_block(self, lock: Any, timeout: float | None) -> None:
        async with Block(self, lock, timeout) as hold:
            await self._work(hold)

    # --- meanwhile -------------------------------------------------------------------------------

    def _spent(self) -> float:
        """Return the seconds of its clock without those in which it stood still."""
        return self.process.clock() - self.process.stood_still() * self.process.rate

    @contextmanager
    def _in_time(self, timeout: float | None) -> Iterator[None]:
        """Look how long a call lasts."""
        began = self._spent()
        try:
            yield
        finally:
            lasted = self._spent() - began
            if timeout is not None and lasted > timeout + OVERRUN and not self.process.world.over:
                raise Violation(f"{self} waited {lasted:.2f} s, not {timeout} s")

    def _gets(self, hold: Any) -> None:
        self._got = True
        self.process.world.say(self, "holds", hold.path[-10:], "token", hold.token)

    async def _work(self, hold: Any, lease: Any = None) -> None:
        random, world = self.random, self.process.world
        self._gets(hold)
        seconds = random.random() ** self.haste * self.longest
        renews = random.random() < 0.7
        if lease is not None and not renews and self.longest:
            seconds = math.inf  # until its time is up
        while seconds > 0 and world.time < self.until and not hold.lost:
            step = min(seconds, random.uniform(0.05, 1.0))
            await self.pause(step)
            seconds -= step
            if lease is not None and renews and random.random() < 0.3:
                await self.do(lease, "renew")
            elif random.random() < 0.1 and not self._is_task:
                with suppress(LockUnavailable):
                    hold.verify(timeout=0.3)
        if hold.lost:
            world.say(self, "has lost it")
        world.happened("release", self.process)

    async def _overstay(self, hold: Any, max_hold: float) -> None:
        """Hold it for longer than allowed: by then its node is gone, if all works."""
        session = self.process.session
        connection, stood_still = session.connection, self.process.stood_still()
        await self.pause(max_hold + 1.0)
        server = self.process.server
        if not hold.lost and stood_still == self.process.stood_still():
            raise Violation(f"{self} holds {hold.path} after its max_hold")
        undisturbed = self.judge.faultless and connection == session.connection
        if undisturbed and hold.path in server.tree.nodes:
            raise Violation(f"{self} keeps others from {hold.path} after its max_hold")


class Block:
    """A ``with`` block, or an ``async with`` block of a task."""

    def __init__(self, caller: Caller, lock: Any, timeout: float | None) -> None:
        self._caller = caller
        self._lock = lock
        self._timeout = timeout

    async def __aenter__(self) -> Any:
        self._caller.lock = self._lock
        with self._caller._in_time(self._timeout):
            return await self._caller.do(self._lock, "__enter__")

    async def __aexit__(self, *ended: object) -> None:
        await self._caller.do(self._lock, "__exit__", *ended)
