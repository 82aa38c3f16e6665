"""Two servers, asked the same and heard in the same words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kazoo.exceptions import APIError, KazooException
from kazoo.protocol.states import ZnodeStat

from distlock.conf import Configuration
from distlock.testing import engine
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE


def configuration(hosts: str, *, auth: tuple[tuple[str, str], ...] = ()) -> Configuration:
    """Return what a client needs of the settings."""
    return Configuration(hosts=hosts, session_timeout=30, auth=auth)


class Side(engine.Side):
    """A connection to one of the two, whose answers are told so that they can be compared."""

    client: Any

    def __init__(self, conf: Configuration) -> None:
        #: The watch events since the last look: (which watch, whether the node was deleted).
        self.events: list[tuple[str, bool]] = []
        super().__init__(conf)

    def hear(self, watch: str) -> Callable[[bool], None]:
        return lambda deleted: self.events.append((watch, deleted))

    def drop(self) -> None:
        marks = ["lost"]
        self.ask(lambda make: make.reading("/", lambda _: marks.clear()))
        self.client.drop()
        eventually(lambda: not marks and self.connected.is_set(), PATIENCE)


class World:
    """Two sessions on one of the two, under a node of their own.

    :param auth: the credentials of the first session
    """

    def __init__(
        self,
        hosts: str,
        root: str,
        *,
        auth: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.sides = [Side(configuration(hosts, auth=auth)), Side(configuration(hosts))]
        self.root = root

    def tree(self) -> dict[str, tuple[bytes, dict[str, Any]]]:
        """All nodes: what they hold, and their stats as far as these are the same for both."""
        found: dict[str, Any] = {}
        side, paths = self.sides[0], [self.root]
        while paths:
            read = side.ask_all([side.client.reading(path) for path in paths])
            listed = side.ask_all([side.client.listing(path) for path in paths])
            found |= zip(paths, read, strict=True)
            paths = [
                f"{path}/{name}"
                for path, names in zip(paths, listed, strict=True)
                for name in names
            ]
        numbers = {n for _, stat in found.values() for n in (stat.czxid, stat.mzxid, stat.pzxid)}
        rank = {number: place for place, number in enumerate(sorted(numbers))}
        return {path: (data, self.told(stat, rank)) for path, (data, stat) in found.items()}

    def told(self, stat: ZnodeStat, rank: dict[int, int] | None = None) -> dict[str, Any]:
        """Return what of a stat is the same for both: not times, numbers only by their order."""
        facts: dict[str, Any] = stat._asdict()
        times = [facts.pop("ctime"), facts.pop("mtime")]
        facts["written later"] = times[1] >= times[0]
        ids = [side.id for side in self.sides]
        owner = facts["ephemeralOwner"]
        facts["ephemeralOwner"] = f"session {ids.index(owner)}" if owner else ""
        zxids = [facts.pop(name) for name in ("czxid", "mzxid", "pzxid")]
        ordered = sorted(set(zxids)) if rank is None else []
        facts["zxids"] = [ordered.index(n) if rank is None else rank[n] for n in zxids]
        return facts

    def normal(self, answer: Any) -> Any:
        """Return an answer so that it can be compared."""
        if isinstance(answer, ZnodeStat):
            return self.told(answer)
        if isinstance(answer, BaseException):
            assert isinstance(answer, KazooException), repr(answer)
            kind = type(answer)
            # Of an error that kazoo knows since 2.11 only.
            return APIError.__name__ if kind.__name__ == "NoWatcherError" else kind.__name__
        if isinstance(answer, list):
            return [self.normal(one) for one in answer]
        return tuple(map(self.normal, answer)) if isinstance(answer, tuple) else answer

    def events(self) -> list[list[tuple[str, bool]]]:
        """Return what each session was told since the last time."""
        told = []
        for side in self.sides:
            side.ask(lambda make: make.reading("/"))  # what was told before is here now
            told.append(sorted(side.events))
            side.events.clear()
        return told
