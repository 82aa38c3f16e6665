"""Measure what locks on Redis are worth over a failover by Sentinel.

python -m benchmarks.failover [--trials 20] [--replicas 0] [--fault demoted] [--session-timeout 6]

Each trial has servers of its own: a primary, two replicas, three Sentinels. A holder takes a lock,
the fault comes, and once the Sentinels name another primary a newcomer asks that one for the lock.
Both take the lock again whenever they lose it. Counted is what both believe: the span of a hold
ends with the last ``check()`` that passed.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import django
from django.conf import settings
from django.test import override_settings

from distlock import LockBusy, LockLost, LockUnavailable, zk_lock
from distlock.session.registry import close_sessions
from distlock_chaos.redis_sentinel import ReplicatedRedis

if TYPE_CHECKING:
    from distlock_chaos.redis_server import Redis

#: How often an actor looks whether it still holds, in seconds.
LOOK = 0.002
#: How long ago its last look may be, in seconds: the machine may be busy.
STALE = 0.5
#: When a trial ends that comes to no end by itself, in seconds after the failover. Sentinel makes a
#: former primary a replica some ten seconds after it.
LONGEST = 16.0


@dataclass
class Actor:
    """Takes the lock whenever it can, and keeps it until it is lost or the actor is to let go."""

    alias: str
    #: From when to when it believed in each of its holds.
    spans: list[list[float]] = field(default_factory=list)
    unavailable: int = 0

    def __post_init__(self) -> None:
        self.leave = threading.Event()
        self.thread = threading.Thread(target=self._act, daemon=True)

    @property
    def holds(self) -> bool:
        """Whether it believes in a hold just now."""
        return bool(self.spans) and time.monotonic() - self.spans[-1][1] < STALE

    def end(self) -> None:
        """Let go, and end."""
        self.leave.set()
        self.thread.join()

    def _act(self) -> None:
        while not self.leave.is_set():
            with suppress(LockBusy, LockLost):
                try:
                    self._hold()
                except LockUnavailable:
                    self.unavailable += 1
                    self.leave.wait(0.05)

    def _hold(self) -> None:
        with zk_lock("key", using=self.alias, timeout=0.5) as hold:
            got = time.monotonic()
            self.spans.append([got, got])
            while not self.leave.wait(LOOK):
                looked = time.monotonic()
                hold.check()
                self.spans[-1][1] = looked


class Fault(NamedTuple):
    """A way to a failover.

    :ivar strike: brings it about, and returns when another server is the primary
    :ivar cut_off: whether the holder reaches the former primary only
    """

    text: str
    strike: Callable[[ReplicatedRedis, Redis], object]
    cut_off: bool = True
    replicated: bool = True


def kill(servers: ReplicatedRedis, primary: Redis) -> None:
    primary.kill()
    servers.successor(primary)


def pause(servers: ReplicatedRedis, primary: Redis) -> None:
    primary.pause()
    servers.successor(primary)
    primary.go_on()


def demote(servers: ReplicatedRedis, _: Redis) -> None:
    servers.fail_over()


FAULTS = {
    "killed": Fault("primary killed", kill, cut_off=False),
    "unreplicated": Fault("primary killed, with a lock not replicated", kill, replicated=False),
    "paused": Fault("primary paused, with the holder's link; goes on after the failover", pause),
    "demoted": Fault("primary cut off with the holder, and lives on", demote),
}


class Outcome(NamedTuple):
    """The result of a trial: seconds, or None where something did not come."""

    refused: bool
    kept: bool
    #: When the holder gave up its first hold, after the fault.
    believed_for: float
    overlap: float
    next_after: float | None


def trial(fault: Fault, replicas: int, session_timeout: float) -> Outcome:
    """Bring a fault about once."""
    with ReplicatedRedis(failover_timeout=2000) as servers:
        options = {"REPLICAS": replicas, "SESSION_TIMEOUT": session_timeout}
        way = servers.primary.hosts if fault.cut_off else servers.hosts
        aliases = {
            "holder": {"HOSTS": way, **options},
            "newcomer": {"HOSTS": servers.hosts, **options},
        }
        holder, newcomer = Actor("holder"), Actor("newcomer")
        with override_settings(DISTLOCK=aliases):
            try:
                return _play(fault, servers, holder, newcomer, session_timeout)
            finally:
                close_sessions()


def _play(
    fault: Fault, servers: ReplicatedRedis, holder: Actor, newcomer: Actor, session_timeout: float
) -> Outcome:
    first = servers.primary
    if not fault.replicated:
        first.ask("ACL", "SETUSER", "default", "-psync", "-sync")
        first.ask("CLIENT", "KILL", "TYPE", "replica")
    holder.thread.start()
    _until(lambda: holder.holds or holder.unavailable > 0, LONGEST)
    refused = not holder.holds
    struck = time.monotonic()
    fault.strike(servers, first)
    over = time.monotonic()
    newcomer.thread.start()
    kept = False
    if not fault.cut_off:
        _until(lambda: not holder.holds, session_timeout + 1)
        kept = len(holder.spans) == 1 and holder.holds
        holder.end()  # others come when it goes
    _until(lambda: newcomer.holds, LONGEST)
    _until(lambda: not holder.holds, over + LONGEST - time.monotonic())
    for actor in (holder, newcomer):
        actor.end()
    believed_for = holder.spans[0][1] - struck if holder.spans else 0.0
    next_after = newcomer.spans[0][0] - struck if newcomer.spans else None
    overlap = _overlap(holder.spans, newcomer.spans)
    return Outcome(refused, kept, believed_for, overlap, next_after)


def _overlap(ones: list[list[float]], others: list[list[float]]) -> float:
    """Return for how long both believed to hold."""
    return sum(
        max(min(one[1], other[1]) - max(one[0], other[0]), 0.0) for one in ones for other in others
    )


def _until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)


def row(fault: Fault, replicas: int, outcomes: Sequence[Outcome]) -> str:
    """Return the line of a table."""
    overlaps = [one.overlap for one in outcomes if one.overlap]
    nexts = [one.next_after for one in outcomes if one.next_after is not None]
    cells = [
        fault.text,
        str(replicas),
        str(len(outcomes)),
        str(sum(one.refused for one in outcomes)),
        str(sum(one.kept for one in outcomes)),
        f"{len(overlaps)} (up to {max(overlaps):.1f} s)" if overlaps else "0",
        f"{statistics.median(nexts):.1f} s" if nexts else "none",
    ]
    return f"| {' | '.join(cells)} |"


def say(line: str) -> None:
    """Print a line of the table, as soon as it is known."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--replicas", type=int, action="append")
    parser.add_argument("--fault", choices=list(FAULTS), action="append")
    parser.add_argument("--session-timeout", type=float, default=6.0)
    options = parser.parse_args()
    settings.configure(INSTALLED_APPS=["distlock"], DATABASES={}, USE_TZ=True)
    django.setup()
    logging.getLogger("distlock").setLevel(logging.CRITICAL)
    say("| fault | `REPLICAS` | trials | refused | kept | two holders | next holder after |")
    say("|---|---|---|---|---|---|---|")
    for name in options.fault or FAULTS:
        for replicas in options.replicas or (0, 1):
            outcomes = []
            for number in range(options.trials):
                outcomes.append(trial(FAULTS[name], replicas, options.session_timeout))
                sys.stderr.write(f"{name} {replicas} {number}: {outcomes[-1]}\n")
            say(row(FAULTS[name], replicas, outcomes))


if __name__ == "__main__":
    main()
