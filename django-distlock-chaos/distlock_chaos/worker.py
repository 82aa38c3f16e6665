"""A worker process: threads that take locks and do protected steps, and tell all they do.

Run as ``python -m distlock_chaos.worker OPTIONS``, with the options as JSON. Orders come
line by line on stdin; its end is the order to end. SIGUSR1 raises an exception in the main thread
while that waits for a lock; SIGUSR2 prints where all threads are.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import django
from django.conf import settings

from .history import History
from .register import Client

if TYPE_CHECKING:
    from types import FrameType

    from .recipes import Grant, Recipe, Want

#: For how long a call waits for its lock, in seconds: one of these by chance.
TIMEOUTS = (0.0, 0.3, 1.0, 3.0, 6.0)
#: How long the pauses within a protected step are, in seconds.
PAUSES = (0.002, 0.01, 0.03, 0.08)
#: The pause between a check and the write that it allows, in one of so many steps: for those whom
#: only the fence can stop.
UNLUCKY = 8
#: How often a thread asks to be woken that notices when the machine is late, in seconds.
TICK = 0.02
#: By how much it must be late to be told, in seconds.
LATE = 0.02
#: How long a forked child may live, in seconds.
CHILD_SECONDS = 8


def marker(folder: Path, pid: int, state: str) -> Path:
    """Return the file by which a worker says that it is "ready" to begin, or "quiet" at the end."""
    return folder / f"{state}-{pid}"


class Interrupted(BaseException):
    """The signal handler raises this, as a soft time limit does."""


class Held(NamedTuple):
    """A call and the lock that it has got."""

    call: str
    grant: Grant


class Worker:
    """The threads of one process, and what they have been ordered to do."""

    def __init__(self, options: dict[str, Any], history: History) -> None:
        from .recipes import make  # noqa: PLC0415 - it needs Django's app registry

        self._options = options
        self._history = history
        self._registers = Client(options["registers"])
        self._calls = itertools.count()
        self._quiesce = threading.Event()
        self._ended = threading.Event()
        self._linger_until = 0.0
        #: Until when a key is held by whoever gets it.
        self._keep_until: dict[str, float] = {}
        self._rest_until = 0.0
        self._traffic_until = 0.0
        self._fork = False
        self._children: list[int] = []
        self._errands: list[threading.Thread] = []
        self._main_thread_waits = False
        self._recipe: Recipe = make(options, self._lost, self._session_began)

    def run(self) -> None:
        """Work in all threads, this one too, until ordered to be quiet; then await the end."""
        signal.signal(signal.SIGUSR1, self._interrupt)
        self._mark("ready")
        threading.Thread(target=self._obey, daemon=True).start()
        threading.Thread(target=self._make_traffic, daemon=True).start()
        threading.Thread(target=self._notice_delays, daemon=True).start()
        threads = [
            threading.Thread(target=self._work, args=(number,), daemon=True)
            for number in range(1, self._options["threads"])
        ]
        for thread in threads:
            thread.start()
        self._work(0)
        for thread in [*threads, *self._errands]:
            thread.join()
        for child in self._children:
            _, status = os.waitpid(child, 0)
            if status != 0:
                self._history.say("stuck", pid=child)
        self._mark("quiet")
        self._ended.wait()
        self._recipe.close()

    def _mark(self, state: str) -> None:
        marker(Path(self._options["folder"]), os.getpid(), state).touch()

    # --- orders ----------------------------------------------------------------------------------

    def _obey(self) -> None:
        with open(0, closefd=False) as orders:
            for line in orders:
                match json.loads(line):
                    case ["linger", seconds]:
                        self._linger_until = time.monotonic() + seconds
                    case ["keep", key, seconds]:
                        self._keep_until[key] = time.monotonic() + seconds
                    case ["take", key, timeout]:
                        self._start_errand(key, timeout)
                    case ["rest", seconds]:
                        self._rest_until = time.monotonic() + seconds
                    case ["traffic", seconds]:
                        self._traffic_until = time.monotonic() + seconds
                    case ["fork"]:
                        self._fork = True
                    case ["quiesce"]:
                        self._linger_until = 0.0
                        self._keep_until.clear()
                        self._quiesce.set()
                    case order:
                        raise ValueError(f"There is no order {order!r}.")
        if not self._quiesce.is_set():  # the harness is gone
            os._exit(1)
        self._ended.set()

    def _start_errand(self, key: str, timeout: float) -> None:
        """Take one key in a thread of its own, beside the usual work."""
        thread = threading.Thread(target=self._run_errand, args=(key, timeout), daemon=True)
        self._errands.append(thread)
        thread.start()

    def _run_errand(self, key: str, timeout: float) -> None:
        """Take one key; again as long as there is time, should the servers be unavailable."""
        chance = random.Random(f"{self._options['seed']}-{key}")  # noqa: S311
        deadline = time.monotonic() + timeout
        how = "unavailable"
        while how == "unavailable" and (left := deadline - time.monotonic()) > 0:
            how = self._take(self._recipe.alone(key), left, chance)
            self._quiesce.wait(TICK)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._main_thread_waits:
            self._main_thread_waits = False
            raise Interrupted

    def _make_traffic(self) -> None:
        """Send requests without waiting for answers, which keeps kazoo from noticing silence."""
        while not self._ended.wait(0.1):
            if time.monotonic() < self._traffic_until:
                self._recipe.send_something()

    def _notice_delays(self) -> None:
        """Tell when a thread that only waits was late, and so was all else in this process."""
        before = time.monotonic()
        while not self._ended.wait(TICK):
            now = time.monotonic()
            if now - before > TICK + LATE:
                self._say("held up", since=round((before + TICK) * 1e9))
            before = now

    # --- work ------------------------------------------------------------------------------------

    def _work(self, number: int) -> None:
        chance = random.Random(f"{self._options['seed']}-{number}")  # noqa: S311
        while not self._quiesce.is_set():
            if time.monotonic() < self._rest_until:
                self._quiesce.wait(TICK)
                continue
            want = self._recipe.choose(self._options["keys"], chance)
            self._take(want, chance.choice(TIMEOUTS), chance)
            self._quiesce.wait(chance.uniform(0.0, 0.1))

    def _take(self, want: Want, timeout: float, chance: random.Random) -> str:
        """Take a lock, or several together, do some protected steps, and report how it went."""
        from .recipes import Failure  # noqa: PLC0415 - as above

        calls = {key: f"{os.getpid()}-{next(self._calls)}" for key in want.keys}
        group = {"group": calls[want.keys[0]]} if len(calls) > 1 else {}
        in_main_thread = threading.current_thread() is threading.main_thread()
        how = "released"
        for key, call in calls.items():
            self._say("ask", call=call, key=key, mode=want.mode, timeout=timeout, **group)
        try:
            self._main_thread_waits = in_main_thread
            with self._recipe.hold(want, timeout) as grants:
                if in_main_thread:
                    self._main_thread_waits = False
                held = [Held(calls[grant.key], grant) for grant in grants]
                for call, grant in held:
                    self._say("got", call=call, token=grant.token)
                try:
                    self._do_steps(want.mode, held, chance)
                finally:
                    for call, _ in held:
                        self._say("release", call=call)
        except Failure as failure:
            how = failure.how
        except Interrupted:
            how = "interrupted"
        except Exception as error:
            logging.getLogger("chaos").exception("A worker's call failed.")
            how = f"failed: {error!r:.300}"
        finally:
            if in_main_thread:
                self._main_thread_waits = False
        for call in calls.values():
            self._say("end", call=call, how=how)
        return how

    def _do_steps(self, mode: str, held: list[Held], chance: random.Random) -> None:
        steps = chance.randint(1, 5)
        while steps > 0 or time.monotonic() < max(self._held_until(g.key) for _, g in held):
            steps -= 1
            self._check(held)
            found = self._begin_step(mode, held)
            time.sleep(chance.choice(PAUSES))
            if self._fork:
                self._fork = False
                self._fork_here(held[0].grant, chance)
            self._check(held)
            if chance.randrange(UNLUCKY) == 0:
                time.sleep(chance.choice(PAUSES))
            self._end_step(mode, held, found)

    def _begin_step(self, mode: str, held: list[Held]) -> list[tuple[int, int]]:
        """Claim the registers, or read them; those who share a semaphore share no register."""
        if mode == "permit":
            return []
        if mode == "read":
            return self._read(held)
        return [self._registers.claim(grant.key, call, grant.token) for call, grant in held]

    def _end_step(self, mode: str, held: list[Held], found: list[tuple[int, int]]) -> None:
        if mode == "read":
            self._read(held)
            return
        for (call, grant), (naive, fenced) in zip(held, found, strict=mode != "permit"):
            self._registers.write(grant.key, call, grant.token, naive + 1, fenced + 1)

    def _read(self, held: list[Held]) -> list[tuple[int, int]]:
        for call, grant in held:
            self._registers.read(grant.key, call, grant.token)
        return []

    def _held_until(self, key: str) -> float:
        return max(self._linger_until, self._keep_until.get(key, 0.0))

    def _check(self, held: list[Held]) -> None:
        for call, grant in held:
            began = time.monotonic_ns()
            try:
                grant.check()
            except BaseException:
                self._say("check", call=call, began=began, passed=False)
                raise
            self._say("check", call=call, began=began, passed=True)

    def _fork_here(self, grant: Grant, chance: random.Random) -> None:
        """Fork; the child looks whether it believes to hold, takes the lock itself, and ends."""
        from .recipes import Lost  # noqa: PLC0415 - as above

        child = os.fork()
        if child:
            self._children.append(child)
            return
        signal.alarm(CHILD_SECONDS)  # nobody else ends it if it hangs
        try:
            self._linger_until = 0.0
            self._keep_until.clear()
            try:
                grant.check()
                believes = True
            except Lost:
                believes = False
            self._say("forked", key=grant.key, believes=believes)
            self._take(self._recipe.alone(grant.key), 0.5, chance)
            self._recipe.close()
        finally:
            os._exit(0)

    def _session_began(self, session_id: int) -> None:
        self._say("session", id=f"{session_id:#x}")

    def _lost(self, key: str, token: int) -> None:
        self._say("lost", key=key, token=token)

    def _say(self, event: str, **facts: Any) -> None:
        facts["at"] = time.monotonic_ns()
        self._history.say(event, pid=os.getpid(), thread=threading.current_thread().name, **facts)


def main() -> None:
    """Work as the first argument of the process says."""
    # Ctrl-C reaches the whole group of processes; the harness ends the workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR2)
    options: dict[str, Any] = json.loads(sys.argv[1])
    settings.configure(
        INSTALLED_APPS=["distlock"],
        DATABASES={},
        USE_TZ=True,
        DISTLOCK={
            "default": {
                "HOSTS": options["hosts"],
                "NAMESPACE": options["namespace"],
                "SESSION_TIMEOUT": options["session_timeout"],
                "STRICT": options["strict"],
                # Or else a former primary that lives on keeps its holders.
                "REPLICAS": int(options["engine"] == "redis" and options["nodes"] > 1),
            }
        },
    )
    django.setup()
    if options["engine"] == "redis":
        from distlock.engine.redis import requests  # noqa: PLC0415 - of the extra [redis]

        # All processes have one session timeout.
        requests.USUAL_SECONDS = options["session_timeout"]  # type: ignore[misc]
    # They report what the history tells: the nemesis at work.
    for name in ("kazoo", "distlock"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    Worker(options, History(Path(options["history"]))).run()


if __name__ == "__main__":
    main()
