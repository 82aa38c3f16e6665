"""Measures how long ago a lease was written, also when the leader's clock is set meanwhile.

A node's ``mtime`` and the time of day both come from the leader's clock, so their difference is the
age of the node as long as nobody sets that clock and no other leader with another one takes over.
The server does not report when that happens. But each acknowledged write of ours is a *reading*:
the server's time, between two moments of our own clock, which nobody sets. Two readings that
disagree on how much time has passed reveal a step, and zxids order readings and leases:

- between two readings that agree, the server's clock measures,
- across a step our own clock measures, from the last reading before it,
- a lease written between two readings that disagree has the lower of the two ages.

So a step can make a lease look younger than it is, never older. A process that has no reading from
before the step cannot see it; then a lease written on the same machine still carries the moment at
which it was sent, on the clock that all processes of a machine share.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Protocol

from distlock.engine.deadline import now

#: A server tells its time in milliseconds, rounded down.
_ROUNDING: Final = 0.001
#: The relative difference in speed of two clocks that does not count as a step. Most differ less.
_DRIFT: Final = 0.0001
#: The number of readings kept. Two for each step are enough.
_KEPT: Final = 16


class Lease(Protocol):
    """A lease as one version of its node has it; see `lease.nodes.Term`."""

    @property
    def zxid(self) -> int: ...
    @property
    def mtime(self) -> int: ...
    @property
    def ttl(self) -> float: ...
    @property
    def sent_here(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """The server's time of one write of ours, and the moments of our clock around it.

    All in seconds, except the `zxid`.
    """

    zxid: int
    time: float
    sent: float
    answered: float

    def agrees(self, later: Reading) -> bool:
        """Whether the server's clock has measured the time between the two as ours has."""
        least, most = later.sent - self.answered, later.answered - self.sent
        slack = 2 * _ROUNDING + most * _DRIFT
        return least - slack <= later.time - self.time <= most + slack

    def least_until(self, later: Reading) -> float:
        """Return the seconds between the two: by the server's clock, or the least by ours."""
        if self.agrees(later):
            return later.time - self.time
        return self.least_here_until(later)

    def least_here_until(self, later: Reading) -> float:
        """Return the least seconds between the two by our clock."""
        return max(later.sent - self.answered - _ROUNDING, 0.0)


class LeaseClock:
    """Keeps the readings of one session, and tells the age of a lease by them."""

    def __init__(self) -> None:
        # Replaced and never changed, so that any thread may look at it.
        self._readings: tuple[Reading, ...] = ()

    def note(self, stat: Any, sent: float) -> None:
        """Take a reading from the stat of a write of ours, which was acknowledged just now."""
        reading = Reading(stat.mzxid, stat.mtime / 1000, sent, now())
        kept = self._readings
        if kept and reading.zxid <= kept[-1].zxid:
            if sent <= kept[-1].answered:  # two threads wrote at the same time
                return
            kept = ()  # another tree, whose zxids say nothing about this one's
        if len(kept) > 1 and kept[-2].agrees(kept[-1]) and kept[-1].agrees(reading):
            kept = kept[:-1]
        self._readings = (*kept[1 - _KEPT :], reading)

    def age(self, term: Lease) -> float:
        """Return the least age of a term, in seconds."""
        readings = self._readings
        later = [reading for reading in readings if reading.zxid >= term.zxid]
        if not later:
            return 0.0
        first, written = later[0], term.mtime / 1000
        age = first.time - written
        earlier = readings[: len(readings) - len(later)]
        if earlier and not earlier[-1].agrees(first):
            before = earlier[-1]
            age = min(age, before.least_until(first) - (written - before.time))
        age = max(age, 0.0) + max(
            first.least_until(one) + one.least_here_until(later[-1]) for one in later
        )
        return age if term.sent_here is None else min(age, now() - term.sent_here)

    def remaining(self, term: Lease) -> float:
        """Return the most seconds that a term lasts; 0 just before its end."""
        return term.ttl - self.age(term)

    def ended(self, term: Lease) -> bool:
        """Whether a term has surely ended, given that the server rounds its times down."""
        return self.remaining(term) < -_ROUNDING / 2


@cache
def this_machine() -> str:
    """Return a name for the processes that share this one's clock, empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        namespace = os.readlink("/proc/self/ns/time").encode()  # noqa: PTH115 - it is no path
    except OSError:
        return ""
    return sha256(boot + namespace).hexdigest()[:16]


def stamp() -> dict[str, Any]:
    """Return the machine and the moment of sending, for the data of a lease."""
    machine = this_machine()
    return {"machine": machine, "sent": round(now(), 3)} if machine else {}


def sent_here(said: Any) -> float | None:
    """Return when a lease was sent, by our clock; None for another machine's."""
    sent = said.get("sent")
    if not said.get("machine") or said["machine"] != this_machine():
        return None
    return sent if isinstance(sent, float) and sent <= now() else None
