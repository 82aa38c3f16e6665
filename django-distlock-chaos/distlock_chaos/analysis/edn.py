"""Writes a history as Jepsen does: one operation a line, in EDN.

The operations are those of a lock: a thread of a worker is a process, which invokes `:acquire` and
`:release`, and each invocation is completed by `:ok`, `:fail` (it had no effect) or `:info` (nobody
knows, or not when). The value is a map with the key, and from the grant on with the fencing token.
A hold that is lost is a `:release` that is invoked when the loss is reported, or when the process
is killed, and completed by `:info`: the server ends it some time later. As Jepsen has it, a process
does nothing after an `:info`, so the thread goes on under another number.

Faults are operations of the process `:nemesis`.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from .timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from distlock_chaos.history import Event

    from .timeline import Call


class Operation(NamedTuple):
    """One line: a time in seconds, a type and a function, and what they are about."""

    at: float
    kind: str
    function: str
    value: dict[str, Any]


def write(path: Path, events: Iterable[Event]) -> None:
    """Write events as one file of EDN, one map a line."""
    path.write_text("".join(f"{line}\n" for line in lines(events)))


def lines(events: Iterable[Event]) -> Iterator[str]:
    """Yield the operations of a history in the order of their times."""
    timeline = Timeline(events)
    threads: dict[tuple[int, str], list[Call]] = defaultdict(list)
    for call in timeline.calls.values():
        threads[call.pid, call.thread].append(call)
    numbers = itertools.count()
    history: list[tuple[str, Operation]] = []
    for calls in threads.values():
        number = next(numbers)
        for call in sorted(calls, key=lambda call: call.asked):
            operations = list(_operations(call))
            history += [(str(number), operation) for operation in operations]
            if operations[-1].kind == "info":
                number = next(numbers)
    history += [(":nemesis", operation) for operation in _faults(timeline)]
    history.sort(key=lambda entry: entry[1].at)
    for index, (process, operation) in enumerate(history):
        facts = {
            "index": index,
            "time": round(operation.at * 1e9),
            "process": _Raw(process),
            "type": _Raw(f":{operation.kind}"),
            "f": _Raw(f":{operation.function}"),
            "value": operation.value,
        }
        yield _edn(facts)


def _operations(call: Call) -> Iterator[Operation]:
    value: dict[str, Any] = {"key": call.key, "mode": _Raw(f":{call.mode}")}
    yield Operation(call.asked, "invoke", "acquire", value)
    ends = call.ended if call.ended is not None else call.killed
    if call.got is None:
        if ends is not None:
            # A call without a result holds nothing, but for one that was killed on its way.
            yield Operation(ends, "fail" if call.killed is None else "info", "acquire", value)
        return
    value = {**value, "token": call.token}
    yield Operation(call.got, "ok", "acquire", value)
    if call.believed_until == math.inf:
        return
    yield Operation(call.believed_until, "invoke", "release", value)
    if ends is not None:
        kind = "ok" if call.how == "released" and call.lost is None else "info"
        yield Operation(max(ends, call.believed_until), kind, "release", value)


def _faults(timeline: Timeline) -> Iterator[Operation]:
    for fault in timeline.faults:
        value = {"fault": fault.kind, "pid": fault.pid, "key": fault.key}
        yield Operation(fault.at, "info", "start", value)
        if fault.healed < math.inf:
            yield Operation(fault.healed, "info", "stop", value)


class _Raw(str):
    """EDN that is written as it is, such as a keyword."""

    __slots__ = ()


def _edn(value: Any) -> str:
    match value:
        case dict():
            return f"{{{', '.join(f':{name} {_edn(one)}' for name, one in value.items())}}}"
        case None:
            return "nil"
        case _Raw():
            return str(value)
        case _:
            return json.dumps(value, ensure_ascii=False)
