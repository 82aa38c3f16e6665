"""A worker process: threads that take locks and do protected steps, and tell all they do.

Run as ``python -m distlock.testing.chaos.worker OPTIONS``, with the options as JSON. Orders come
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
from typing import TYPE_CHECKING, Any

import django
from django.conf import settings

from .history import History
from .register import Client

if TYPE_CHECKING:
    from types import FrameType

    from .recipes import Grant, Recipe

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


def quiet_marker(folder: Path, pid: int) -> Path:
    """Return the file by which a worker says that all its threads have finished their work."""
    return folder / f"quiet-{pid}"


class Interrupted(BaseException):
    """What the signal handler raises, as a soft time limit does."""


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
        self._traffic_until = 0.0
        self._fork = False
        self._children: list[int] = []
        self._main_thread_waits = False
        self._recipe: Recipe = make(options, self._lost)

    def run(self) -> None:
        """Work in all threads, this one too, until ordered to be quiet; then await the end."""
        signal.signal(signal.SIGUSR1, self._interrupt)
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
        for thread in threads:
            thread.join()
        for child in self._children:
            _, status = os.waitpid(child, 0)
            if status != 0:
                self._history.say("stuck", pid=child)
        quiet_marker(Path(self._options["folder"]), os.getpid()).touch()
        self._ended.wait()
        self._recipe.close()

    # --- orders ----------------------------------------------------------------------------------

    def _obey(self) -> None:
        with open(0, closefd=False) as orders:
            for line in orders:
                order, seconds = json.loads(line)
                if order == "linger":
                    self._linger_until = time.monotonic() + seconds
                elif order == "traffic":
                    self._traffic_until = time.monotonic() + seconds
                elif order == "fork":
                    self._fork = True
                elif order == "quiesce":
                    self._linger_until = 0.0
                    self._quiesce.set()
        if not self._quiesce.is_set():  # the harness is gone
            os._exit(1)
        self._ended.set()

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
            key = chance.choice(self._options["keys"])
            self._take(key, chance.choice(TIMEOUTS), chance)
            self._quiesce.wait(chance.uniform(0.0, 0.1))

    def _take(self, key: str, timeout: float, chance: random.Random) -> None:
        """Take a lock and do some protected steps, and tell how it went."""
        from .recipes import Busy, Lost, Unavailable  # noqa: PLC0415 - as above

        call = f"{os.getpid()}-{next(self._calls)}"
        in_main_thread = threading.current_thread() is threading.main_thread()
        how = "released"
        self._say("ask", call=call, key=key, timeout=timeout)
        try:
            self._main_thread_waits = in_main_thread
            with self._recipe.hold(key, timeout) as grant:
                if in_main_thread:
                    self._main_thread_waits = False
                self._say("got", call=call, token=grant.token)
                try:
                    self._do_steps(key, call, grant, chance)
                finally:
                    self._say("release", call=call)
        except Busy:
            how = "busy"
        except Unavailable:
            how = "unavailable"
        except Lost:
            how = "lost"
        except Interrupted:
            how = "interrupted"
        except Exception as error:
            logging.getLogger("chaos").exception("A worker's call failed.")
            how = f"failed: {error!r:.300}"
        finally:
            if in_main_thread:
                self._main_thread_waits = False
        self._say("end", call=call, how=how)

    def _do_steps(self, key: str, call: str, grant: Grant, chance: random.Random) -> None:
        steps = chance.randint(1, 5)
        while steps > 0 or time.monotonic() < self._linger_until:
            steps -= 1
            self._check(call, grant)
            naive, fenced = self._registers.claim(key, call, grant.token)
            time.sleep(chance.choice(PAUSES))
            if self._fork:
                self._fork = False
                self._fork_here(key, grant, chance)
            self._check(call, grant)
            if chance.randrange(UNLUCKY) == 0:
                time.sleep(chance.choice(PAUSES))
            self._registers.write(key, call, grant.token, naive + 1, fenced + 1)

    def _check(self, call: str, grant: Grant) -> None:
        began = time.monotonic_ns()
        try:
            grant.check()
        except BaseException:
            self._say("check", call=call, began=began, passed=False)
            raise
        self._say("check", call=call, began=began, passed=True)

    def _fork_here(self, key: str, grant: Grant, chance: random.Random) -> None:
        """Fork; the child looks whether it believes to hold, takes the lock itself, and ends."""
        from .recipes import Lost  # noqa: PLC0415 - as above

        child = os.fork()
        if child:
            self._children.append(child)
            return
        signal.alarm(CHILD_SECONDS)  # nobody else ends it if it hangs
        try:
            self._linger_until = 0.0
            try:
                grant.check()
                believes = True
            except Lost:
                believes = False
            self._say("forked", key=key, believes=believes)
            self._take(key, 0.5, chance)
            self._recipe.close()
        finally:
            os._exit(0)

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
            }
        },
    )
    django.setup()
    # They report what the history tells: the nemesis at work.
    for name in ("kazoo", "distlock"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    Worker(options, History(Path(options["history"]))).run()


if __name__ == "__main__":
    main()
