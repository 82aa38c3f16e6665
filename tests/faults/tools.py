"""Histories written by hand, for the checker to judge."""

from __future__ import annotations

from ast import literal_eval
from typing import Any

from distlock_chaos.analysis.checker import Violation, check
from distlock_chaos.analysis.timeline import Timeline
from distlock_chaos.history import Event


class Story:
    """A history in the making: every method adds what happened at a time, in seconds.

    The session timeout is 4 s and the tick 1 s; there is one key.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._tokens: dict[str, int] = {}
        self._pids: dict[str, int] = {}
        size = {"seed": 7, "seconds": 30.0, "processes": 3, "nodes": 1, "recipe": "distlock"}
        self.add(0, "run", format=1, session_timeout=4.0, tick=1.0, limit=2, **size)

    def tell(self, text: str) -> None:
        """Add a history in words: "1 hold a 10, 1.5 fault quorum-loss until=2, 3 killed pid=1"."""
        for told in text.split(","):
            at, event, *words = told.split()
            named = (word.split("=") for word in words if "=" in word)
            facts = {name: _value(value) for name, value in named}
            if known := getattr(self, event, None):
                known(float(at), *(_value(word) for word in words if "=" not in word), **facts)
            else:
                self.add(float(at), event, **facts)

    def add(self, at: float, event: str, **facts: Any) -> None:
        """Add any event."""
        self.events.append({"event": event, "at": round(at * 1e9), **facts})

    def ask(
        self,
        at: float,
        call: str,
        *,
        pid: int = 1,
        timeout: float = 1.0,
        mode: str = "lock",
        group: str = "",
    ) -> None:
        self._pids[call] = pid
        facts = {"pid": pid, "key": "key", "timeout": timeout, "mode": mode, "group": group}
        self.add(at, "ask", call=call, thread=f"thread of {pid}", **facts)

    def hold(
        self, at: float, call: str, token: int, *, pid: int = 1, mode: str = "lock", group: str = ""
    ) -> None:
        """Somebody asked just now, and got the lock."""
        self.ask(at - 0.001, call, pid=pid, mode=mode, group=group)
        self.get(at, call, token)

    def get(self, at: float, call: str, token: int) -> None:
        self._tokens[call] = token
        self.add(at, "got", call=call, token=token)

    def check(self, at: float, call: str, *, passed: bool = True) -> None:
        began = round((at - 0.0001) * 1e9)
        self.add(at, "check", call=call, began=began, passed=passed)

    def claim(self, at: float, call: str, *, fenced: int, accepted: bool = True) -> None:
        self._operate(at, "claim", call, accepted, found=[0, fenced], wrote=[None, None])

    def write(
        self, at: float, call: str, *, read: int, found: int | None = None, accepted: bool = True
    ) -> None:
        """Add one to what was read, in both registers, where `found` is in them."""
        found = read if found is None else found
        values = {"found": [found, found], "wrote": [read + 1, read + 1]}
        self._operate(at, "write", call, accepted, **values)

    def read(self, at: float, call: str, *, accepted: bool = True) -> None:
        self._operate(at, "read", call, accepted, found=[0, 0], wrote=[None, None])

    def lose(self, at: float, call: str) -> None:
        """The signal says the loss."""
        pid, token = self._pids[call], self._tokens[call]
        self.add(at, "lost", pid=pid, key="key", token=token)

    def release(self, at: float, call: str, *, ended: float | None = None) -> None:
        self.add(at, "release", call=call)
        self.end(at + 0.001 if ended is None else ended, call, "released")

    def end(self, at: float, call: str, how: str) -> None:
        self.add(at, "end", call=call, how=how)

    def fault(self, at: float, kind: str, *, until: float, pid: int = 1) -> None:
        self.add(at, "fault", kind=kind, lasts=until - at, pid=pid, key="key")
        self.add(until, "healed", kind=kind, began=round(at * 1e9))

    def stopped(self, begin: float, end: float, *, pid: int = 1) -> None:
        self.add(begin, "stopped", pid=pid)
        self.add(end, "continued", pid=pid)

    def held_up(self, begin: float, end: float, *, pid: int = 1) -> None:
        """The machine did not let a process run."""
        self.add(end, "held up", pid=pid, since=round(begin * 1e9))

    def cut_off(self, begin: float, end: float, *, pid: int = 1) -> None:
        self.add(begin, "cut off", pid=pid)
        self.add(end, "joined", pid=pid)

    def left(self, at: float, *nodes: str, watches: int = 0) -> None:
        self.add(at, "left", nodes=list(nodes), watches=watches)

    def timeline(self) -> Timeline:
        return Timeline(sorted(self.events, key=lambda event: int(event["at"])))

    def violations(self) -> list[Violation]:
        return check(self.timeline())

    def gates(self) -> list[str]:
        """The gates that this history fails."""
        return sorted({violation.gate for violation in self.violations()})

    def _operate(
        self, at: float, event: str, call: str, accepted: bool, **values: list[int] | list[None]
    ) -> None:
        facts = {"call": call, "key": "key", "token": self._tokens[call], "accepted": accepted}
        self.add(at, event, **facts, **values)


def _value(word: str) -> object:
    try:
        return literal_eval(word)
    except (SyntaxError, ValueError):
        return word.replace("-", " ")
