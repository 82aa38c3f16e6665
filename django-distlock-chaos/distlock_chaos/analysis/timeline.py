"""A history, put in order: calls, holds, writes, faults. Times are seconds from the first event."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from distlock_chaos.history import Event

#: For how long a process that goes on after a stop is not blamed for being late, in seconds.
GRACE = 0.5


#: Each mode, and the modes that exclude it.
_RIVALS = {
    "lock": ("lock",),
    "lease": ("lease",),
    "write": ("write", "read"),
    "read": ("write",),
    "permit": (),
}


class Span(NamedTuple):
    """From when to when."""

    begin: float
    end: float


class Check(NamedTuple):
    """One ``check()`` of a holder."""

    began: float
    at: float
    passed: bool


@dataclass(kw_only=True)
class Call:
    """One attempt to take a lock, and the hold that came of it, if one did."""

    id: str
    pid: int
    key: str
    timeout: float
    asked: float
    thread: str = ""
    #: "lock", "read", "write", "permit" or "lease".
    mode: str = "lock"
    #: The first call of those that were taken together with this one.
    group: str = ""
    #: When acquire returned with the lock.
    got: float | None = None
    token: int = 0
    #: When release was called.
    released: float | None = None
    #: When the call had returned: acquire without the lock, or else release.
    ended: float | None = None
    how: str = ""
    #: When the loss was said: by the signal, or by a check that failed.
    lost: float | None = None
    #: How many times the servers had been replaced by empty ones. Tokens rise within an era.
    era: int = 0
    #: Until when it may rightly not know that an operator, or a replaced server, has ended it.
    unaware_until: float | None = None
    killed: float | None = None
    checks: list[Check] = field(default_factory=list)

    @property
    def order(self) -> tuple[int, int]:
        """Where a hold is among all of its key: era and token."""
        return self.era, self.token

    @property
    def answered(self) -> float | None:
        """When acquire returned."""
        return self.ended if self.got is None else self.got

    @property
    def believed_until(self) -> float:
        """When the holder stopped to take itself for one: released, told of a loss, or killed.

        A lease ends by the clock, and its holder hears of it when it asks, so what counts there is
        the last check that passed.
        """
        lost = self.lost
        if lost is not None and self.mode == "lease":
            passed = [check.at for check in self.checks if check.passed]
            lost = max(passed, default=self.got)
        ends = [at for at in (self.released, lost, self.killed) if at is not None]
        return min(ends, default=math.inf)

    def lose(self, at: float) -> None:
        """Note that the loss was said."""
        self.lost = at if self.lost is None else min(at, self.lost)

    def holds_at(self, at: float) -> bool:
        """Whether it believed to hold at that time."""
        return self.got is not None and self.got <= at < self.believed_until


class Write(NamedTuple):
    """One operation on the registers, when it took effect."""

    at: float
    call: Call
    #: "claim", "read" or "write".
    kind: str
    accepted: bool
    #: The era and the token, as the registers saw them.
    order: tuple[int, int]
    #: The values of the naive and the fenced register before it.
    found: list[int]
    wrote: list[int | None]


class Fault(NamedTuple):
    """One fault, as it was carried out."""

    at: float
    healed: float
    kind: str
    pid: int
    key: str | None


class Timeline:
    """The calls, processes and faults of a history, for the checker."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = list(events)
        self.zero = int(self.events[0]["at"]) if self.events else 0
        self.until = self._time(self.events[-1]) if self.events else 0.0
        self.run: Event = next((e for e in self.events if e["event"] == "run"), {})
        #: How many may share a semaphore.
        self.limit = int(self.run.get("limit", 1))
        self.session_timeout = float(self.run.get("session_timeout", 4.0))
        self.tick = float(self.run.get("tick", 1.0))
        self.stops = self._spans("stopped", "continued")
        self.cut_offs = self._spans("cut off", "joined")
        self.delays: dict[int, list[Span]] = defaultdict(list)
        for event in self.of("held up"):
            span = Span(self._time(event, "since"), self._time(event))
            self.delays[event["pid"]].append(span)
        self.calls = self._read_calls()
        self.writes = [
            Write(
                self._time(event),
                self.calls[event["call"]],
                event["event"],
                event["accepted"],
                (event.get("era", 0), event["token"]),
                event["found"],
                event["wrote"],
            )
            for event in self.of("claim", "read", "write")
        ]
        self.faults = self._read_faults()
        #: When, in which process, another session began than its first.
        self.sessions = self._read_sessions()

    def of(self, *names: str) -> Iterator[Event]:
        """Yield the events of these names."""
        return (event for event in self.events if event["event"] in names)

    @cached_property
    def holds(self) -> list[Call]:
        """The calls that got the lock."""
        return [call for call in self.calls.values() if call.got is not None]

    def rival(self, hold: Call) -> Call | None:
        """Return the first to get the lock with a greater token that excludes this hold.

        Readers do not exclude each other, and the holders of permits nobody by themselves.
        """
        return self._rivals.get(hold.id)

    @cached_property
    def _rivals(self) -> dict[str, Call]:
        found: dict[str, Call] = {}
        first: dict[tuple[str, str], Call] = {}
        for hold in sorted(self.holds, key=lambda hold: (hold.order, hold.got), reverse=True):
            rivals = [
                first[hold.key, mode] for mode in _RIVALS[hold.mode] if (hold.key, mode) in first
            ]
            if rivals:
                found[hold.id] = min(rivals, key=lambda rival: rival.got or 0)
            known = first.get((hold.key, hold.mode))
            if known is None or (hold.got or 0) < (known.got or 0):
                first[hold.key, hold.mode] = hold
        return found

    def was_stopped(self, pid: int, span: Span) -> Span | None:
        """Return when a process was stopped within a span, or until shortly before it."""
        for stop in self.stops.get(pid, ()):
            if stop.begin <= span.end and span.begin <= stop.end + GRACE:
                return stop
        return None

    def held_up(self, pid: int, span: Span) -> float:
        """Return for how many seconds of a span the machine kept a process from running."""
        return sum(
            max(min(delay.end, span.end) - max(delay.begin, span.begin), 0.0)
            for delay in self.delays.get(pid, ())
        )

    def _time(self, event: Event, name: str = "at") -> float:
        return (int(event[name]) - self.zero) / 1e9

    def _spans(self, begin: str, end: str) -> dict[int, list[Span]]:
        spans: dict[int, list[Span]] = defaultdict(list)
        for event in self.of(begin, end):
            known = spans[event["pid"]]
            if event["event"] == begin:
                known.append(Span(self._time(event), math.inf))
            else:
                known[-1] = known[-1]._replace(end=self._time(event))
        return spans

    def _read_calls(self) -> dict[str, Call]:
        calls: dict[str, Call] = {}
        for event in self.of("ask", "got", "release", "end", "check"):
            at = self._time(event)
            if event["event"] == "ask":
                names = {"pid", "thread", "key", "timeout", "mode", "group"} & event.keys()
                facts = {name: event[name] for name in names}
                calls[event["call"]] = Call(id=event["call"], asked=at, **facts)
                continue
            call = calls[event["call"]]
            match event["event"]:
                case "got":
                    call.got, call.token = at, event["token"]
                case "release":
                    call.released = at
                case "end":
                    call.ended, call.how = at, event["how"]
                case "check":
                    call.checks.append(Check(self._time(event, "began"), at, event["passed"]))
                    if not event["passed"]:
                        call.lose(at)
        for event in self.of("lost", "broke", "killed", "replaced"):
            for call in calls.values():
                self._end(call, event, self._time(event))
        return calls

    def _end(self, call: Call, event: Event, at: float) -> None:
        """Note what an event, which names no call, means to a call."""
        match event["event"]:
            case "lost":
                if (call.key, call.token) == (event["key"], event["token"]):
                    call.lose(at)
            case "broke":
                hit = (call.pid, call.key) == (event["pid"], event["key"])
                # A waiter too may get the lock on a node that is gone. The first heartbeat after
                # the grant sets the watch on it.
                if hit and call.asked <= at < call.believed_until and call.got is not None:
                    # Nothing tells the holder of a lease before it renews it, at half time.
                    part = 2 if call.mode == "lease" else 6
                    known = max(call.got, at) + self.session_timeout / part
                    call.unaware_until = known + GRACE
            case "replaced":
                if call.holds_at(at):
                    # No server tells it before its deadline, if there is none to talk to.
                    call.unaware_until = at + self.session_timeout * 2 / 3 + GRACE
                elif call.got is not None and call.got > at:
                    call.era += 1
            case "killed":
                if call.pid == event["pid"] and call.ended is None:
                    call.killed = at

    def _read_faults(self) -> list[Fault]:
        healed = {event["began"]: self._time(event) for event in self.of("healed")}
        return [
            Fault(
                self._time(event),
                healed.get(event["at"], math.inf),
                event["kind"],
                event["pid"],
                event["key"],
            )
            for event in self.of("fault")
        ]

    def _read_sessions(self) -> list[tuple[float, int]]:
        known: set[int] = set()
        later = []
        for event in self.of("session"):
            if event["pid"] in known:
                later.append((self._time(event), event["pid"]))
            known.add(event["pid"])
        return later
