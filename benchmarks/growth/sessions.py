"""A process that carries many sessions, each as if it were a process of its own.

Run as ``python -m benchmarks.growth.sessions HOSTS SESSION_TIMEOUT NUMBER``. It says "ready" when
all sessions are connected. Orders come line by line on stdin; its end is the order to end. Each is
answered by a line: how often a lock was taken by now.

    join            all sessions contend for one lock, over and over
    hold NUMBER     each session takes so many locks that nobody else wants, and keeps them
    release         gives them back
    look            only answers
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Coroutine, Iterable
from functools import partial

import django
from django.conf import settings

from distlock import zk_lock
from distlock.session.programs import Driver, asking
from distlock.session.registry import session_for

#: How many locks are being taken at a time.
AT_A_TIME = 64


class Sessions:
    """The sessions of this process, and the tasks that take locks."""

    def __init__(self, aliases: list[str]) -> None:
        self._aliases = aliases
        self._acquired = self._wanted = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._may_take = asyncio.Semaphore(AT_A_TIME)
        self._one_at_a_time = asyncio.Lock()
        self._taken = asyncio.Event()
        self._may_release = asyncio.Event()

    async def obey(self) -> None:
        for using in self._aliases:
            session = session_for(using)
            await Driver(session, "", 60).call(asking(partial(session.read, "/"))).arun()
        sys.stdout.write("ready\n")
        while order := (await asyncio.to_thread(sys.stdin.readline)).split():
            match order:
                case ["join"]:
                    self._start(self._contend(using) for using in self._aliases)
                case ["hold", number]:
                    await self._hold(int(number))
                case ["release"]:
                    self._may_release.set()
                    await asyncio.gather(*self._tasks)
                    self._tasks = []
            for task in self._tasks:
                if task.done():
                    task.result()  # it has failed: so does the measurement
            sys.stdout.write(f"{self._acquired}\n")

    async def _hold(self, number: int) -> None:
        self._may_release.clear()
        self._taken.clear()
        self._wanted = self._acquired + number * len(self._aliases)
        self._start(
            self._take(using, f"{os.getpid()}-{using}-{key}")
            for using in self._aliases
            for key in range(number)
        )
        all_taken = asyncio.create_task(self._taken.wait())
        # One that ends has failed.
        await asyncio.wait([*self._tasks, all_taken], return_when=asyncio.FIRST_COMPLETED)
        all_taken.cancel()

    def _start(self, work: Iterable[Coroutine[None, None, None]]) -> None:
        self._tasks = [asyncio.create_task(one) for one in work]

    async def _take(self, using: str, key: str) -> None:
        lock = zk_lock(key, using=using, timeout=60)
        async with self._may_take:
            await lock.aacquire()
        self._acquired += 1
        if self._acquired == self._wanted:
            self._taken.set()
        await self._may_release.wait()
        async with self._one_at_a_time:
            # A release only sends its delete. Tens of thousands at once would keep the heartbeat
            # behind them, until the connection passes for dead.
            requests = session_for(using)._in_flight  # noqa: SLF001 - nobody else asks
            while len(requests) > AT_A_TIME:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.001)
            await lock.arelease()

    async def _contend(self, using: str) -> None:
        lock = zk_lock("line", using=using, timeout=None)
        while True:
            async with lock:
                self._acquired += 1


def main() -> None:
    hosts, session_timeout, number = sys.argv[1:]
    options = {
        "HOSTS": hosts,
        "SESSION_TIMEOUT": float(session_timeout),
        "CONNECT_TIMEOUT": 10,
        "MAX_NODE_BYTES": 100_000_000,  # a single server, which needs no quorum for the end
    }
    aliases = [f"session-{index}" for index in range(int(number))]
    settings.configure(DISTLOCK=dict.fromkeys(aliases, options))
    django.setup()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    asyncio.run(Sessions(aliases).obey())


if __name__ == "__main__":
    try:
        main()
    except Exception:  # noqa: BLE001 - whatever it is, the log has it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)  # the server goes, too: no need to say good-bye for each session
