"""True time, what is to happen in it, and the hosts on which it happens.

Everything that happens is an action in one heap, by its true time and a number that settles ties.
A host runs its own actions: it may stand still, and then what was due comes in some order of its
threads, or it may die.
"""

from __future__ import annotations

from asyncio import _get_running_loop, _set_running_loop
from collections import deque
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable
    from random import Random

    #: Yields the seconds to wait to be woken; None has no end.
    Steps = Generator[float | None, None, Any]

#: The longest time that a thread waits for its turn on the processor, usually and at times.
TURN, LATE_TURN = 0.0005, 0.03


class Violation(BaseException):
    """Something happened that must not. No code of distlock takes it for an error of its own."""


class World:
    """The true time, and what is to happen in it.

    :param random: of what happens by chance to all together
    :param trace: takes what happens, line by line; None is quicker
    """

    def __init__(self, random: Random, trace: list[str] | None = None) -> None:
        self.time = 0.0
        #: Whether nothing happens any more.
        self.over = False
        self.random = random
        self.trace = trace
        #: The host, and the thread, that runs now.
        self.here: Any = None
        self.hosts: list[Host] = []
        self.thread: Any = None
        #: Called with each moment that a fault may wait for, and the process that it concerns.
        self.happened: Callable[[str, Any], None] = lambda *_: None
        self._due: list[tuple[float, int, Callable[..., Any], Any]] = []
        self._ties = count()

    def after(self, seconds: float, action: Callable[..., Any], *args: Any) -> None:
        """Let an action happen after so many seconds."""
        heappush(self._due, (self.time + seconds, next(self._ties), action, args))

    def run(self, until: float) -> None:
        """Let all happen that is due until then."""
        due = self._due
        while due and due[0][0] <= until:
            self.time, _, action, args = heappop(due)
            action(*args)
        self.time = until

    def say(self, who: object, *what: object) -> None:
        """Add a line to the trace."""
        if self.trace is not None and not self.over:
            self.trace.append(f"{self.time:10.6f} {who}: {' '.join(map(str, what))}")


class Host:
    """What stands still and dies as one, and has a clock: a process, or a server.

    :param rate: how fast its clock runs
    """

    def __init__(self, world: World, name: str, random: Random, rate: float = 1.0) -> None:
        self.world = world
        world.hosts.append(self)
        self.name = name
        self.random = random
        self.rate = rate
        self._began = random.uniform(0, 1000)
        self.stopped = self.dead = False
        #: For how long it stood still, and since when it does.
        self.still, self._since = 0.0, 0.0
        self._life = 0
        #: By thread: what was due while it stood still.
        self._waiting: dict[Hashable, deque[tuple[Callable[..., Any], Any]]] = {}

    def __str__(self) -> str:
        return self.name

    def clock(self) -> float:
        """Return the seconds of its clock."""
        return self._began + self.world.time * self.rate

    def after(self, seconds: float, thread: Hashable, action: Callable[..., Any], *a: Any) -> None:
        """Let a thread do something after so many seconds of its clock."""
        if self.dead:
            return  # it has died in the middle of an action
        self.world.after(max(seconds, 1e-6) / self.rate, self.run, self._life, thread, action, *a)

    def now(self, thread: Hashable, action: Callable[..., Any], *args: Any) -> None:
        """Let a thread do something as soon as the host runs."""
        self.run(self._life, thread, action, *args)

    def run(self, life: int, thread: Hashable, action: Callable[..., Any], *args: Any) -> None:
        if life != self._life or self.dead:
            return
        if self.stopped or thread in self._waiting:
            self._waiting.setdefault(thread, deque()).append((action, args))
        else:
            self._act(thread, action, args)

    def _act(self, thread: Hashable, action: Callable[..., Any], args: Any) -> None:
        world = self.world
        before = world.here, world.thread
        world.here, world.thread = self, thread
        action(*args)
        world.here, world.thread = before

    def stop(self) -> None:
        """Stand still, as after SIGSTOP."""
        if not (self.stopped or self.dead):
            self.stopped, self._since = True, self.world.time
            self.world.say(self, "stands still")

    def go_on(self) -> None:
        """Go on, each thread as soon as it gets its turn."""
        if self.stopped and not self.dead:
            self.stopped = False
            self.still += self.world.time - self._since
            self.world.say(self, "goes on")
            for thread in self._waiting:
                self.world.after(self.random.uniform(0, LATE_TURN), self._catch_up, thread)

    def _catch_up(self, thread: Hashable) -> None:
        waiting = self._waiting.get(thread)
        while waiting and not self.stopped:
            self._act(thread, *waiting.popleft())
        if not waiting:
            self._waiting.pop(thread, None)

    def die(self) -> None:
        """End at once, as after SIGKILL."""
        self.world.say(self, "dies")
        self.dead = True
        self._end_life()

    def _end_life(self) -> None:
        self.stopped = False
        self._life += 1
        self._waiting.clear()

    def stood_still(self) -> float:
        """Return for how many seconds it has stood still."""
        return self.still + (self.world.time - self._since if self.stopped else 0.0)


class Thread:
    """A thread of a host: a greenlet, which waits until it is woken or its time is up."""

    def __init__(self, host: Host, name: str, run: Callable[[], Any]) -> None:
        self.host = host
        self.name = name
        #: As that of `threading.Thread`.
        self.ident = id(self)
        #: What code in it takes for its thread.
        self.known_as = self
        #: Whether it goes on.
        self.takes_part = True
        self._greenlet = greenlet(run)
        self._runs = False
        self._rung = False
        self._wait = 0
        #: The event loop that runs in it.
        self._loop: Any = None
        self._turn()

    def __str__(self) -> str:
        return f"{self.host} {self.name}"

    @property
    def over(self) -> bool:
        ended: bool = self._greenlet.dead
        return ended

    def continue_as(self, other: Thread) -> None:
        """Be another one in a forked child."""
        self.known_as = other
        self._greenlet.gr_context = other._greenlet.gr_context.copy()

    def wait(self, seconds: float | None) -> None:
        """Wait to be woken, None has no end; called in this thread."""
        if self.host.world.over:
            raise GreenletExit
        self._greenlet.parent.switch(seconds)

    def drive(self, steps: Steps) -> Any:
        """Go through steps in this thread, and return their result."""
        while True:
            try:
                seconds = next(steps)
            except StopIteration as end:
                return end.value
            self.wait(seconds)

    def wake(self) -> None:
        """End the wait of now, or the next one."""
        if not self._rung:
            self._rung = True
            self._turn()

    def wake_at_once(self) -> None:
        """End the wait of now before whoever calls goes on, as after a change of threads."""
        if self._runs:
            self.wake()
        else:
            self.host.now(self, self._go, self._wait)

    def throw(self, error: BaseException, waits: Callable[[], bool]) -> None:
        """Let an exception land in its wait, unless that is over by then."""

        def land() -> None:
            if waits() and not self.over:
                self._step(error)

        self.host.after(0, self, land)

    def end(self) -> None:
        """End it, when the world is over."""
        while not self.over:
            with suppress(Exception, Violation):
                self.host._act(self, self._step, (GreenletExit(),))

    def _turn(self) -> None:
        random = self.host.random
        late = random.random() < 0.01
        self.host.after(random.random() * (LATE_TURN if late else TURN), self, self._go, self._wait)

    def _go(self, wait: int) -> None:
        if wait == self._wait and self.takes_part and not self.over:
            self._step()

    def _step(self, error: BaseException | None = None) -> None:
        self._wait += 1
        self._rung = False
        one = self._greenlet
        one.parent = getcurrent()
        outer = _get_running_loop()
        _set_running_loop(self._loop)
        self._runs = True
        try:
            seconds = one.switch() if error is None else one.throw(error)
        finally:
            self._runs = False
            self._loop = _get_running_loop()
            _set_running_loop(outer)
        if self.over:
            return
        if self._rung:
            self._turn()
        elif seconds is not None:
            self.host.after(seconds, self, self._go, self._wait)
