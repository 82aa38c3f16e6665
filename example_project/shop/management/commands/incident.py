"""`manage.py incident NAME`: plants an incident, for you to find on the admin page.

Each process of an incident is this command again, with `--part`. It ends when its input does.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import time
from argparse import SUPPRESS
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib.admin.utils import quote
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.test import override_settings
from django.urls import reverse

from distlock import DistlockError, zk_lease, zk_lock
from distlock.admin.history import address
from distlock.inspection.tree import look
from distlock.models import Lock
from distlock.owner.owner import label
from distlock_chaos.guard import GuardedProcess
from example_project.shop.runner import PROJECT, sigterm_as_exit

SECONDS = 120


def stay() -> None:
    """Tell the command that this process is in its place, and stay until it says to go."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()


def in_thread(work: Callable[..., None], *arguments: Any) -> None:
    def run() -> None:
        with suppress(DistlockError):  # of the end, or of an operator's
            work(*arguments)

    threading.Thread(target=run, daemon=True).start()


def come_again(key: str, work: str, needs: float) -> None:
    """Queue for a lock, hold it for some seconds, and queue again."""
    while True:
        with label(work), zk_lock(key, timeout=None):
            time.sleep(needs)


def slow_holder(key: str, number: int) -> None:
    if number == 0:
        with label("count the warehouse"), zk_lock(key, timeout=None):
            stay()
    for _ in range(3):
        in_thread(come_again, key, "POST /products/radio/buy/", 0.1)
    stay()


def herd(key: str, number: int) -> None:
    for _ in range(3 if number else 60):
        in_thread(come_again, key, "GET /prices/" if number else "import prices", 0.5)
    stay()


def deadlock(key: str, number: int) -> None:
    names = (key.removeprefix("account:"), "frank")
    mine, other = names if number == 0 else names[::-1]
    has_mine = threading.Event()

    def pay() -> None:
        with label(f"{mine} pays {other}"), zk_lock(f"account:{mine}", timeout=None):
            has_mine.set()
            while not zk_lock(f"account:{other}").locked():
                time.sleep(0.1)
            with zk_lock(f"account:{other}", timeout=None):
                pass

    # With detection, one of the two would give way after some seconds.
    blind = {**settings.DISTLOCK["default"], "DEADLOCK_AFTER": None}
    with override_settings(DISTLOCK={**settings.DISTLOCK, "default": blind}):
        in_thread(pay)
        has_mine.wait()
        stay()


def lost_session(key: str, number: int) -> None:
    with label(f"yearly report, run {number + 1}"), zk_lock(key, timeout=None):
        stay()


def leaked_lease(key: str, _: int) -> None:
    lease = zk_lease(key, ttl=SECONDS, owner="price export")
    lease.acquire()
    lease.release()  # that of an earlier incident, which would only be renewed
    lease.acquire()
    stay()


class Incident(NamedTuple):
    """`blow`: the signal for the first process, before the second one starts."""

    does: str
    key: str
    work: Callable[[str, int], None]
    command: str
    processes: int = 2
    blow: signal.Signals | None = None
    page: str = "lock"
    after: str = ""


INCIDENTS = {
    "slow-holder": Incident(
        "Three buyers wait behind somebody who holds the lock for much too long.",
        *("stock:radio", slow_holder, "why stock:radio"),
    ),
    "herd": Incident(
        "A process wants one lock in 60 threads, and others wait behind these.",
        *("prices:spring", herd, "why prices:spring"),
    ),
    "deadlock": Incident(
        "Two processes wait for each other, with detection switched off.",
        *("account:erin", deadlock, "why account:erin"),
    ),
    "lost-session": Incident(
        "A process stood still until its lock was another's, and goes on.",
        *("report:yearly", lost_session, "history report:yearly"),
        blow=signal.SIGSTOP,
        page="history",
    ),
    "leaked-lease": Incident(
        "A process was killed, and the lease that it had stays.",
        *("export:prices", leaked_lease, "why export:prices", 1, signal.SIGKILL),
        after=f"The lease ends {SECONDS} s after its begin; `python manage.py distlock sweep` then "
        "removes its node. `distlock break export:prices` ends it at once.",
    ),
}


class Command(BaseCommand):
    help = "Plant an incident in the locks of the running shop; without a name, list them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", choices=INCIDENTS, help="which (without: the list)")
        parser.add_argument(
            "--seconds", type=float, default=SECONDS, help=f"how long it stays ({SECONDS})"
        )
        parser.add_argument("--part", type=int, help=SUPPRESS)

    def handle(
        self, *_: Any, name: str | None, seconds: float, part: int | None, **__: Any
    ) -> None:
        if name is None:
            for one, incident in INCIDENTS.items():
                self.stdout.write(f"{one:<13} {incident.does}")
        elif part is None:
            with suppress(KeyboardInterrupt), ExitStack() as stack:
                stack.enter_context(sigterm_as_exit())
                self.plant(name, stack)
                time.sleep(seconds)
            self.stdout.write(f"\nOver. {INCIDENTS[name].after}".rstrip())
        else:
            try:
                INCIDENTS[name].work(INCIDENTS[name].key, part)
            except DistlockError as error:
                raise CommandError(str(error)) from error

    def plant(self, name: str, stack: ExitStack) -> None:
        incident = INCIDENTS[name]
        log = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="incident-")), "log")
        for number in range(incident.processes):
            process = GuardedProcess(
                [sys.executable, "manage.py", "incident", name, "--part", str(number)],
                output=log,
                cwd=PROJECT,
                piped=True,
            )
            stack.callback(process.wait)
            stack.callback(process.stdin.close)
            stack.callback(process.send, signal.SIGCONT)
            if not process.stdout.readline():
                raise CommandError(f"A process of the incident has ended.\n{log.read_text()}")
            if number == 0:
                first = process
                if incident.blow == signal.SIGSTOP:
                    process.pause()
                elif incident.blow:
                    process.send(incident.blow)
        first.send(signal.SIGCONT)
        lock = Lock.at("default", look(incident.key).locks[0].name)
        if incident.page == "history":
            events = address(lock.using, lock.name)
            page = f"{reverse('admin:distlock_lockevent_changelist')}?{events}"
        else:
            page = reverse("admin:distlock_lock_change", args=[quote(lock.pk)])
        self.stdout.write(
            f"Planted: {incident.does}\nThe page:    {page}\n"
            f"The command: python manage.py distlock {incident.command}\nCtrl-C ends it."
        )
        self.stdout.flush()
