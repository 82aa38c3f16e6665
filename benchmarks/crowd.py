"""One process of `benchmarks.herd`: contenders for one lock, each with a session of its own.

Run as ``python -m benchmarks.crowd HOSTS fair|unfair NUMBER``. It says "ready" when all sessions
are connected and contend. Orders come line by line on stdin; its end is the order to end.

    release     whoever holds here releases
    join        whoever has released contends again
    look        answered by a line: how many hold here, and how many requests have no answer yet
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial

import django
from django.conf import settings

from benchmarks.herd import SESSION_TIMEOUT
from distlock import zk_lock
from distlock.session.programs import Driver, asking
from distlock.session.registry import session_for


class Crowd:
    """The contenders of this process, tasks of one event loop."""

    def __init__(self, fair: bool, aliases: list[str]) -> None:
        self._fair = fair
        self._sessions = {using: session_for(using) for using in aliases}
        self._holding = 0
        self._may_release = asyncio.Semaphore(0)
        self._may_join = asyncio.Semaphore(0)

    async def obey(self) -> None:
        for session in self._sessions.values():
            await Driver(session, "", 60).call(asking(partial(session.read, "/"))).arun()
        contenders = [asyncio.create_task(self._contend(using)) for using in self._sessions]
        sys.stdout.write("ready\n")
        while order := (await asyncio.to_thread(sys.stdin.readline)).strip():
            if order == "release":
                self._may_release.release()
            elif order == "join":
                self._may_join.release()
            else:
                unanswered = sum(len(one._in_flight) for one in self._sessions.values())  # noqa: SLF001
                sys.stdout.write(f"{self._holding} {unanswered}\n")
            for contender in contenders:
                if contender.done():
                    contender.result()  # it has failed: so does the benchmark

    async def _contend(self, using: str) -> None:
        lock = zk_lock("key", using=using, fair=self._fair, timeout=None)
        while True:
            async with lock:
                self._holding += 1
                await self._may_release.acquire()
                self._holding -= 1
            await self._may_join.acquire()


def main() -> None:
    hosts, kind, number = sys.argv[1:]
    options = {"HOSTS": hosts, "SESSION_TIMEOUT": SESSION_TIMEOUT, "CONNECT_TIMEOUT": 10}
    aliases = [f"session-{index}" for index in range(int(number))]
    settings.configure(DISTLOCK=dict.fromkeys(aliases, options))
    django.setup()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    asyncio.run(Crowd(kind == "fair", aliases).obey())


if __name__ == "__main__":
    try:
        main()
    finally:
        sys.stderr.flush()
        os._exit(0)  # the server goes, too: no need to say good-bye for each session
