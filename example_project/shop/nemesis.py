"""What goes wrong on purpose in a sale: worker processes are killed or stopped while they sell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from django.db import connection

from distlock import zk_lock
from example_project.shop.models import Payment, Product
from example_project.shop.strategies import LOCKED

if TYPE_CHECKING:
    from example_project.shop.buyers import Crowd
    from example_project.shop.runner import WebServer

PAUSE_SECONDS = 20
"""How long a worker is stopped at most; `buyers.ANSWER_SECONDS` is longer."""


@dataclass(frozen=True, kw_only=True)
class Kill:
    """A worker process that got SIGKILL; `held`: while it was inside the critical section."""

    pid: int
    held: bool


@dataclass(frozen=True, kw_only=True)
class Pause:
    """A worker process that got SIGSTOP and, `seconds` later, SIGCONT.

    `held`: it stood between its read and its write, and somebody else bought meanwhile.
    """

    pid: int
    held: bool
    seconds: float


Misfortune = TypeVar("Misfortune", Kill, Pause)


class Nemesis:
    """Attacks whoever sells this product, until the sale is over."""

    def __init__(self, product: Product, crowd: Crowd, server: WebServer) -> None:
        self._product = product
        self._crowd = crowd
        self._server = server
        self._paused: set[tuple[str, int]] = set()

    def strike(self, *, kills: int, pauses: int) -> tuple[list[Kill], list[Pause]]:
        """Kill and then stop workers, until so many of them were hit where it hurts."""
        self._crowd.started.wait()
        try:
            return self._repeat(self._kill, kills), self._repeat(self._pause, pauses)
        finally:
            connection.close()  # this thread's own

    def _repeat(self, attack: Callable[[], Misfortune | None], count: int) -> list[Misfortune]:
        done: list[Misfortune] = []
        while sum(one.held for one in done) < count and not self._crowd.finished.is_set():
            if one := attack():
                done.append(one)
            else:
                self._crowd.finished.wait(0.01)
        return done

    def _kill(self) -> Kill | None:
        """Kill the worker inside the critical section now; None when there is none to be seen."""
        inside = self._look_inside()
        if inside is None or not self._server.runs(inside[1]):
            return None
        _, pid = inside
        os.kill(pid, signal.SIGKILL)
        while self._server.runs(pid):
            time.sleep(0.001)
        # The dead cannot tidy up: if its mark is still there, it was inside when it died.
        return Kill(pid=pid, held=self._look_inside() == inside)

    def _pause(self) -> Pause | None:
        """Stop the worker that asks for money now, until somebody else has bought."""
        asking = self._look_between()
        # Nobody twice: the buyer's patience would end before the answer.
        if asking is None or asking in self._paused:
            return None
        _, pid = asking
        sold = self._product.orders.count()
        started = time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        try:
            while not _stopped(pid):
                time.sleep(0.001)
            if self._look_between() != asking:
                return None  # it had gone on before the signal came
            self._paused.add(asking)
            while (
                (held := self._product.orders.count() > sold) is False
                and time.monotonic() - started < PAUSE_SECONDS
                and not self._crowd.finished.wait(0.05)
            ):
                pass
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return Pause(pid=pid, held=held, seconds=round(time.monotonic() - started, 1))

    def _look_inside(self) -> tuple[str, int] | None:
        """The mark and process id of who is inside: the lock's node, or else a pending payment."""
        if using := LOCKED.get(self._product.strategy):
            holder = zk_lock(f"stock:{self._product.sku}", using=using).holder()
            return (holder.path, holder.pid) if holder and holder.pid else None
        return self._look_between()

    def _look_between(self) -> tuple[str, int] | None:
        """The mark and process id of who has read the stock and not written it: it awaits money."""
        pending = Payment.objects.filter(
            sku=self._product.sku, status=Payment.Status.PENDING
        ).order_by("created_at")
        payment = next((one for one in pending if self._server.runs(one.worker)), None)
        return (str(payment.pk), payment.worker) if payment else None


def _stopped(pid: int) -> bool:
    """Whether a process has been stopped, or is gone."""
    state = ""
    if sys.platform == "linux":  # where small images lack ps
        with suppress(FileNotFoundError, ProcessLookupError):
            # The name comes first, in brackets, and may hold spaces.
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2]
    else:
        state = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(pid)],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip()
    return state[:1] in {"T", "Z", ""}
