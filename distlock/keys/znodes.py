"""Builds, parses and orders Curator's node names, and reads the data of nodes.

``_c_<uuid4>-lock-0000000042``: a prefix that only its creator knows (to find the node again after a
lost reply), the recipe's name, and the sequence number that the server appended.
Source: Curator's ``ProtectedMode``, ``LockInternals`` and ``StandardLockInternalsDriver``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from operator import attrgetter
from random import Random
from typing import Any, Final, NamedTuple

from distlock.process import in_child
from distlock.text import printable

from .limits import MAX_INT

#: The recipe's part of a node's name: of a mutex, a reader, a writer.
LOCK: Final = "lock-"
READ: Final = "__READ__"
WRITE: Final = "__WRIT__"
#: The same for a semaphore's permit (Curator calls it a lease). Permits are not queued.
LEASE: Final = "lease-"
#: The parent of the lines of tickets (`distlock.celery.tickets`), and the end of the names of those
#: for permits: see `tasks_line`.
TICKETS: Final = "@tickets"
PERMITS: Final = "@permits"
#: In the name of a mutex that leaves a cool-down behind (`contenders.cool_down`); in the name of a
#: cool-down, before its end in milliseconds.
COOLS: Final = "-cools-"
UNTIL: Final = "-until-"
#: The data that asks a participant of Curator to leave, written into its node.
REVOKE: Final = b"__REVOKE__"

#: The year 3000, in seconds since 1970. No node of ours has a later time.
_LATEST: Final = 32_503_680_000

#: The first number too close to the end of the counter: from there on a queue is *worn*. The rest,
#: 67 million numbers, is for clients that do not begin queues anew.
WORN: Final = MAX_INT + 1 - 2**26

# The server formats its signed 32-bit counter with %010d, so a wrapped one carries a minus sign.
_SEQUENCE = r"(?P<sequence>[0-9]{10}|-[0-9]{9,10})"
_NODE = re.compile(r".*(?P<kind>lock-|__READ__|__WRIT__)" + _SEQUENCE)
_LEASE = re.compile(r".*(?P<kind>lease-)" + _SEQUENCE)
_COOL_DOWN = re.compile(rf".*{UNTIL}(?P<end>[0-9]{{1,15}})-{LOCK}" + _SEQUENCE)
#: Recipes that ignore our nodes, or order them differently, and the pattern of their nodes' names.
_INCOMPATIBLE = {
    "kazoo's own Lock": re.compile(r".*__r?lock__" + _SEQUENCE),
    "Curator's LeaderLatch": re.compile(r".*latch-" + _SEQUENCE),
}
#: How long the stem of a prefix is: all but the last group of digits.
STEM: Final = 27


def protected_prefix(like: str = "") -> str:
    """Return a new prefix ``_c_<uuid4>-``, one for every attempt to create (CURATOR-190).

    :param like: another one, with which it shares the stem
    """
    digits = f"{_random.getrandbits(120):030x}"
    stem = like[:STEM] or f"_c_{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-8{digits[15:18]}-"
    return f"{stem}{digits[18:]}-"


# It need not be secret, and the system's random numbers take ten times as long.
_random = Random()  # noqa: S311
in_child(_random.seed)


class NodeName(NamedTuple):
    """The parts of a contender's node name."""

    name: str
    kind: str
    sequence: int


# Each name is seen by all who wait, again at each look: a line that is longer is parsed each time.
@lru_cache(maxsize=32_768)
def parse(name: str, pattern: re.Pattern[str] = _NODE) -> NodeName | None:
    """Return the parts of `name`, or None if it is not a contender's (CURATOR-43)."""
    found = pattern.fullmatch(name)
    return found and NodeName(name, found["kind"], int(found["sequence"]))


def with_parents(path: str) -> list[str]:
    """Return the paths of a node and of all nodes above it, the top first."""
    names = path.split("/")
    return ["/".join(names[:depth]) for depth in range(2, len(names) + 1)]


def is_worn(sequence: int) -> bool:
    """Return whether a queue is close to the end of its sequence numbers, or beyond it.

    The server's counter sticks at `MAX_INT` (ZOOKEEPER-3249). Older servers let it wrap.
    """
    return not 0 <= sequence < WORN


def incompatible_recipe(name: str) -> str:
    """Return the recipe that makes nodes such as `name` and can never exclude ours, or ""."""
    return next((recipe for recipe, names in _INCOMPATIBLE.items() if names.fullmatch(name)), "")


def is_peer(data: bytes) -> bool:
    """Return whether a node with this data belongs to another client, as far as can be known."""
    return data != REVOKE and "v" not in read_json(data)


def asks_to_leave(data: bytes) -> bool:
    """Return whether the data of a node has a request to leave."""
    return data == REVOKE or read_json(data).get("revoked") is True


def with_request(data: bytes) -> bytes:
    """Return the data of a node with a request to leave: ours say their names on, peers' do not."""
    said = read_json(data)
    return json.dumps({**said, "revoked": True}).encode() if "v" in said else REVOKE


def with_wait(data: bytes, waited: float) -> bytes:
    """Return the data of a holder's node with the seconds that it waited for the grant."""
    said = {**read_json(data), "waited": round(waited, 3)}
    return json.dumps(said, separators=(",", ":")).encode()


def cool_down_name(ends_at: float, sequence: int) -> str:
    """Return the name of a cool-down behind the node of a number, given its end in seconds."""
    return f"{protected_prefix()[:-1]}{UNTIL}{int(ends_at * 1000)}-{LOCK}{sequence:010d}"


def cool_down_end(name: str) -> float | None:
    """Return when a cool-down ends, in seconds of the server's time; None for another node."""
    found = _COOL_DOWN.fullmatch(name)
    return int(found["end"]) / 1000 if found else None


def has_cool_down(names: Iterable[str]) -> bool:
    """Return, for almost nothing, whether one of the names may be a cool-down's."""
    return UNTIL in "/".join(names)


def without_ended(names: Iterable[str], now: float) -> list[str]:
    """Return the names but those of cool-downs that have ended."""
    return [name for name in names if (cool_down_end(name) or now) >= now]


def in_line(names: Iterable[str]) -> list[NodeName]:
    """Return the contenders among `names`, first come first.

    Servers before ZOOKEEPER-3249 let the counter wrap to negative numbers, so the numbers form a
    ring. Contenders of one moment are never half the ring apart, and the longest gap is before the
    first of them. At the end of the counter nobody of ours holds (`is_worn`).
    """
    return _in_order(map(parse, names))


def leases(names: Iterable[str]) -> list[NodeName]:
    """Return a semaphore's permits among `names`, the oldest first."""
    return _in_order(parse(name, _LEASE) for name in names)


def tasks_line(name: str, *, limited: bool) -> str:
    """Return the name, below `TICKETS`, of the line of the tasks that wait for a lock.

    :param name: the lock's own, which has no "@"
    :param limited: whether they wait for permits, which have a line beside that of the key's lock
    """
    return name + (PERMITS if limited else "")


def _in_order(found: Iterable[NodeName | None]) -> list[NodeName]:
    nodes = sorted(filter(None, found), key=attrgetter("sequence"))
    if nodes and nodes[-1].sequence - nodes[0].sequence > MAX_INT:
        start = next(i for i, node in enumerate(nodes) if node.sequence >= 0)
        return nodes[start:] + nodes[:start]
    return nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Participant:
    """A holder or a waiter, as its node describes it.

    Nodes of Curator and other peers carry other data. Then `peer` is true, and only `path`,
    `sequence`, `token` and `session_id` are known. The same is known of a participant that
    Curator's ``Revoker`` asked to leave, since that replaces the data: `revoked` is true, and
    whether it is a peer is unknown.

    :ivar path: the path of its node
    :ivar sequence: the number of its node: its position in the queue
    :ivar token: its fencing token
    :ivar session_id: the id of its session
    :ivar peer: whether another client than distlock made the node
    :ivar revoked: whether somebody has asked it to leave
    :ivar host: the name of its machine
    :ivar pid: its process id there
    :ivar worker: its thread or task
    :ivar owner_id: the id of its owner, unique over all processes
    :ivar label: the work it does: a request such as ``POST /buy/42``, or a Celery task
    :ivar template: the template of its key, such as ``stock:<sku>``; empty for a key without one
    :ivar since: when it asked for the lock, by its own clock
    :ivar waited: the seconds from the creation of its node to the grant; None for a waiter, and
        until the hold has lasted for a few seconds
    """

    path: str
    sequence: int
    token: int
    session_id: int
    peer: bool = False
    revoked: bool = False
    host: str = ""
    pid: int | None = None
    worker: str = ""
    owner_id: str = ""
    label: str = ""
    template: str = ""
    since: datetime | None = None
    waited: float | None = None

    def __str__(self) -> str:
        if self.peer:
            return f"a peer with node {self.path.rpartition('/')[2]}"
        who = f"{self.host}:{self.pid} {self.worker}".strip() if self.host else self.owner_id
        who = f"{who} ({self.label})" if self.label else who
        if self.revoked:
            who = who or f"a participant with node {self.path.rpartition('/')[2]}"
            return f"{who}, who was asked to leave"
        return who

    @classmethod
    def from_node(
        cls, path: str, data: bytes, *, token: int, session_id: int
    ) -> Participant | None:
        """Read a node. Return None if its name is neither a contender's nor a permit's.

        :meta private:
        """
        name = path.rpartition("/")[2]
        node = parse(name) or parse(name, _LEASE)
        if node is None:
            return None
        said = read_json(data)
        return cls(
            path=path,
            sequence=node.sequence,
            token=token,
            session_id=session_id,
            # As `is_peer` and `asks_to_leave`; a list of 10,000 locks reads each node once.
            peer="v" not in said and data != REVOKE,
            revoked=data == REVOKE or said.get("revoked") is True,
            owner_id=text_in(said.get("owner")),
            waited=_seconds_in(said.get("waited")),
            **place_in(said),
        )


def read_json(data: bytes) -> dict[str, Any]:
    """Parse the data of a node; return an empty dict for data that is not ours."""
    try:
        said = json.loads(data[:10_000])
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def text_in(value: object) -> str:
    """Return a text that is safe to print: no surrogates, newlines, escapes, bidi marks."""
    return printable(value[:200]) if isinstance(value, str) else ""


def owner_in(data: bytes) -> str:
    """Return who works, in words, without host and process: ``POST /buy/42 (Thread-1)``."""
    said = read_json(data)
    label, worker = text_in(said.get("label")), text_in(said.get("worker"))
    return (
        f"{label} ({worker})" if label and worker else label or worker or text_in(said.get("owner"))
    )


def place_in(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return where and since when an owner works, for a `Participant`, without what cannot be."""
    facts: dict[str, Any] = {
        name: text_in(said.get(name)) for name in ("host", "worker", "label", "template")
    }
    pid: Any = said.get("pid")
    since = _seconds_in(said.get("since"))
    if type(pid) is int and 0 < pid < 2**31:
        facts["pid"] = pid
    if since is not None:
        facts["since"] = datetime.fromtimestamp(since, tz=timezone.utc)
    return facts


def _seconds_in(value: Any) -> float | None:
    """Return a number of seconds, also since 1970, that can be shown in any time zone."""
    return value if type(value) in (int, float) and 0 <= value < _LATEST else None
