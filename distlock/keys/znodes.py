"""Curator's node names: build, parse, order; and what a node says of its owner.

``_c_<uuid4>-lock-0000000042``: a prefix that only its creator knows (to find the node again after a
lost reply), the recipe's name, and the sequence number that the server appended.
Source: Curator's ``ProtectedMode``, ``LockInternals`` and ``StandardLockInternalsDriver``.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The recipe's part of a node's name: of a mutex, a reader, a writer.
LOCK: Final = "lock-"
READ: Final = "__READ__"
WRITE: Final = "__WRIT__"
#: That of a semaphore's lease, which stands in no line: whoever has a node has a lease.
LEASE: Final = "lease-"
#: What is written into a participant's node to ask it to leave.
REVOKE: Final = b"__REVOKE__"

#: In seconds since 1970, the year 3000: no node of ours says more.
_LATEST: Final = 32_503_680_000

#: The first number that is too near to the end of the counter: from there on a line is *worn*.
#: What is left are 67 million numbers, for clients that do not begin lines anew.
WORN: Final = 2**31 - 2**26

# The server formats its signed 32-bit counter with %010d, so a wrapped one carries a minus sign.
_SEQUENCE = r"(?P<sequence>[0-9]{10}|-[0-9]{9,10})"
_NODE = re.compile(r".*(?P<kind>lock-|__READ__|__WRIT__)" + _SEQUENCE)
_LEASE = re.compile(r".*(?P<kind>lease-)" + _SEQUENCE)
#: The nodes of recipes that do not look at ours, or order them otherwise: the recipe → its names.
_INCOMPATIBLE = {
    "kazoo's own Lock": re.compile(r".*__r?lock__" + _SEQUENCE),
    "Curator's LeaderLatch": re.compile(r".*latch-" + _SEQUENCE),
}


def protected_prefix() -> str:
    """Return a new ``_c_<uuid4>-``: one for every attempt to create (CURATOR-190)."""
    return f"_c_{UUID(int=_random.getrandbits(128), version=4)}-"


# It need not be secret, and the system's random numbers take ten times as long.
_random = Random()  # noqa: S311
os.register_at_fork(after_in_child=_random.seed)


class NodeName(NamedTuple):
    """The parts of a contender's node name."""

    name: str
    kind: str
    sequence: int


def parse(name: str) -> NodeName | None:
    """Return the parts of `name`, or None where it is not a contender's (CURATOR-43)."""
    return _parse(_NODE, name)


def _parse(pattern: re.Pattern[str], name: str) -> NodeName | None:
    found = pattern.fullmatch(name)
    return found and NodeName(name, found["kind"], int(found["sequence"]))


def with_parents(path: str) -> list[str]:
    """Return the paths of a node and of all above it, the top first: what is to be made for it."""
    names = path.split("/")
    return ["/".join(names[:depth]) for depth in range(2, len(names) + 1)]


def sequence_of(name: str) -> str:
    """Return the sequence number at the end of a contender's name, as the server wrote it."""
    found = _NODE.fullmatch(name)
    return found["sequence"] if found else ""


def is_worn(sequence: int) -> bool:
    """Tell whether a line has come near to the end of its sequence numbers, or beyond it.

    The counter of the server does not wrap: it sticks at 2147483647 (ZOOKEEPER-3249), and what is
    created in one go there gets a negative number. Before, it wrapped to negative numbers.
    """
    return not 0 <= sequence < WORN


def incompatible_recipe(name: str) -> str:
    """Return the recipe that makes nodes such as `name` and can never exclude ours, or ""."""
    return next((recipe for recipe, names in _INCOMPATIBLE.items() if names.fullmatch(name)), "")


def is_peer(data: bytes) -> bool:
    """Tell whether a node with this data is not one of distlock's, as far as that is known."""
    return data != REVOKE and "v" not in read_json(data)


def in_line(names: Iterable[str]) -> list[NodeName]:
    """Return the contenders among `names`, first come first.

    Servers before ZOOKEEPER-3249 let the counter wrap to negative numbers, so the order is that of
    a ring: contenders of one moment are never half the ring apart, and the longest gap is before
    the first of them. At the end of the counter nobody of ours holds (`is_worn`).
    """
    return _in_order(map(parse, names))


def leases(names: Iterable[str]) -> list[NodeName]:
    """Return a semaphore's leases among `names`, the oldest first."""
    return _in_order(_parse(_LEASE, name) for name in names)


def _in_order(found: Iterable[NodeName | None]) -> list[NodeName]:
    nodes = sorted(filter(None, found), key=lambda node: node.sequence)
    if nodes and nodes[-1].sequence - nodes[0].sequence >= 2**31:
        start = next(i for i, node in enumerate(nodes) if node.sequence >= 0)
        return nodes[start:] + nodes[:start]
    return nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Participant:
    """Who stands in a line, as its node tells: a holder or a waiter.

    Nodes of Curator and other peers carry other data; then only `path`, `sequence`, `token` and
    `session_id` are known and `peer` is true. So it is with one who was asked to leave, since the
    request takes the place of the data: `revoked` is true, and whether it is a peer is not known.
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
    since: datetime | None = None

    def __str__(self) -> str:
        if self.revoked:
            return f"a participant with session 0x{self.session_id:x}, who was asked to leave"
        if self.peer:
            return f"a peer with session 0x{self.session_id:x}"
        who = f"{self.host}:{self.pid} {self.worker}".strip() if self.host else self.owner_id
        return f"{who} ({self.label})" if self.label else who

    @classmethod
    def from_node(
        cls, path: str, data: bytes, *, token: int, session_id: int
    ) -> Participant | None:
        """Read a node. Return None where its name is neither a contender's nor a lease's."""
        name = path.rpartition("/")[2]
        node = parse(name) or _parse(_LEASE, name)
        if node is None:
            return None
        said = read_json(data)
        return cls(
            path=path,
            sequence=node.sequence,
            token=token,
            session_id=session_id,
            peer="v" not in said and data != REVOKE,
            revoked=data == REVOKE,
            host=text_in(said.get("host")),
            pid=pid_in(said.get("pid")),
            worker=text_in(said.get("worker")),
            owner_id=text_in(said.get("owner")),
            label=text_in(said.get("label")),
            since=time_in(said.get("since")),
        )


def read_json(data: bytes) -> dict[str, Any]:
    """Parse what anybody may have written into a node; what is not ours counts as nothing."""
    try:
        said = json.loads(data[:10_000])
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def text_in(value: object) -> str:
    """Return a text that can be printed anywhere: no surrogates, newlines, escapes, bidi marks."""
    if not isinstance(value, str):
        return ""
    return printable(value[:200])


#: How many characters of a text that somebody else has chosen are shown.
MAX_SHOWN: Final = 500


def printable(text: str, most: int = MAX_SHOWN) -> str:
    """Return a text without newlines, escapes and bidi marks: anybody may have chosen it.

    A long one loses its middle.
    """
    text = clipped(text, most)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def pid_in(value: object) -> int | None:
    """Return a process id, None where it cannot be one."""
    return value if type(value) is int and 0 < value < 2**31 else None


def clipped(text: str, most: int = MAX_SHOWN) -> str:
    """Return a text without its middle if it is long: names and messages differ at their ends."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\N{HORIZONTAL ELLIPSIS}{text[-(most // 2) :]}"


def time_in(value: object) -> datetime | None:
    """Return a time that can be shown in any time zone; None where it cannot be one."""
    if type(value) not in (int, float) or not 0 <= cast("float", value) < _LATEST:
        return None
    return datetime.fromtimestamp(cast("float", value), tz=timezone.utc)
