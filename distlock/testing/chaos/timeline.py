"""A history, put in order: calls, holds, writes, faults. Times are seconds from the first event."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .history import Event

#: For how long a process that goes on after a stop is not blamed for being late, in seconds.
GRACE = 0.5


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
    #: When an operator deleted the node.
    broken: float | None = None
    killed: float | None = None
    checks: list[Check] = field(default_factory=list)

    @property
    def answered(self) -> float | None:
        """When acquire returned."""
        return self.ended if self.got is None else self.got

    @property
    def believed_until(self) -> float:
        """When the holder stopped to take itself for one: released, told of a loss, or killed."""
        ends = [at for at in (self.released, self.lost, self.killed) if at is not None]
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
    does_write: bool
    accepted: bool
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
    """What the checker looks at."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = list(events)
        self.zero = int(self.events[0]["at"]) if self.events else 0
        self.until = self._time(self.events[-1]) if self.events else 0.0
        self.run: Event = next((e for e in self.events if e["event"] == "run"), {})
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
                event["event"] == "write",
                event["accepted"],
                event["found"],
                event["wrote"],
            )
            for event in self.of("claim", "write")
        ]
        self.faults = self._read_faults()

    def of(self, *names: str) -> Iterator[Event]:
        """Yield the events of these names."""
        return (event for event in self.events if event["event"] in names)

    @cached_property
    def holds(self) -> list[Call]:
        """The calls that got the lock."""
        return [call for call in self.calls.values() if call.got is not None]

    def rival(self, hold: Call) -> Call | None:
        """Return the first to get the lock with a greater token."""
        return self._rivals.get(hold.id)

    @cached_property
    def _rivals(self) -> dict[str, Call]:
        found: dict[str, Call] = {}
        first: dict[str, Call] = {}
        for hold in sorted(self.holds, key=lambda hold: (hold.token, hold.got), reverse=True):
            rival = first.get(hold.key)
            if rival is not None:
                found[hold.id] = rival
            if rival is None or (hold.got or 0) < (rival.got or 0):
                first[hold.key] = hold
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
                facts = {name: event[name] for name in ("pid", "key", "timeout")}
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
        for event in self.of("lost", "broke", "killed"):
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
                if (call.pid, call.key) == (event["pid"], event["key"]) and call.holds_at(at):
                    call.broken = at
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
