"""Reads and writes the node of a lease.

The node is ``<root>/@leases/<znode name of the key>``, persistent, so it outlives its creator. No
key's znode name has an ``@``. The parents are container nodes.

Its data is JSON: ``v``, ``owner``, ``ttl`` (seconds), ``attempt`` (names the call that wrote it, so
that the call recognises its own write after a lost reply), ``mark``, ``token`` (from the first
renewal on), ``machine`` and ``sent`` (see `lease_clock.stamp`), and the place of the owner at the
time of the write, as in `Owner.describe`.

Versions begin at 0 again with a new node, so a version alone does not identify a node: a slow
contender would take over from, or delete, the next owner. So each node has one child with a unique
name, the *mark*, and every write and delete is a transaction that requires it.

- *Time is the server's.* A lease ends `ttl` after the ``mtime`` of its node, and "now" is the
  ``mtime`` of a write to ``@leases``. `lease_clock` notices when that clock is set.
- *The token* is the zxid of the write by which the owner took the lease, so it rises from owner to
  owner, even over removed nodes. Renewals keep it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from distlock.keys.templates import plain_text
from distlock.keys.znodes import Participant, place_in, read_json, text_in
from distlock.session.lease_clock import sent_here, stamp
from distlock.session.session import Session

#: The longest lease, in seconds: a year. More is a mistake, such as milliseconds.
LONGEST: Final = 366 * 86400.0

_MARK = re.compile(r"[0-9a-f]{32}")


def parent_of_leases(session: Session) -> str:
    """Return the parent path of all leases in a session's namespace."""
    return f"{session.root}/@leases"


@dataclass(frozen=True, slots=True)
class Term:
    """The owner, begin and length of a lease, as one version of its node has them."""

    owner: str
    ttl: float
    attempt: str
    token: int
    version: int
    mark: str
    #: The server's time of the last write, in milliseconds, and that write's id.
    mtime: int
    zxid: int
    #: When that write was sent, by our own clock; None if another machine sent it.
    sent_here: float | None
    said: Mapping[str, Any]

    @classmethod
    def read(cls, data: bytes, stat: Any) -> Term | None:
        """Return the term in a node's data, or None if it is unreadable."""
        said = read_json(data)
        owner, ttl, token = said.get("owner"), said.get("ttl"), said.get("token")
        mark = said.get("mark")
        # Without its mark nobody could write or delete the node.
        if not isinstance(mark, str) or not _MARK.fullmatch(mark) or stat.numChildren != 1:
            return None
        if not isinstance(owner, str) or isinstance(ttl, bool) or not isinstance(ttl, int | float):
            return None
        if not owner or not 0 < ttl <= LONGEST:
            return None
        # No write is later than the last one, so a greater token comes from another tree.
        return cls(
            owner=owner,
            ttl=float(ttl),
            attempt=text_in(said.get("attempt")),
            token=token if isinstance(token, int) and 0 < token <= stat.mzxid else stat.mzxid,
            version=stat.version,
            mark=mark,
            mtime=stat.mtime,
            zxid=stat.mzxid,
            sent_here=sent_here(said),
            said=said,
        )

    @property
    def ends_at(self) -> float:
        """When it ends, in milliseconds of the server's time."""
        return self.mtime + self.ttl * 1000

    @property
    def expires(self) -> datetime:
        """When it ends, by the server's clock."""
        return datetime.fromtimestamp(self.ends_at / 1000, tz=timezone.utc)


def encode(
    said: Mapping[str, Any], attempt: str, ttl: float, *, mark: str, renewed: Term | None = None
) -> bytes:
    """Return a node's data, with the facts of its writer, and the token of a renewed term."""
    kept: dict[str, Any] = {}
    if renewed is not None:
        kept = {"token": renewed.token}
        if "since" in said and "since" in renewed.said:
            kept["since"] = renewed.said["since"]
    data = {**said, "attempt": attempt, "ttl": ttl, "mark": mark, **stamp(), **kept}
    return json.dumps(data, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder(Participant):
    """The owner of a lease, as its node describes it. For unreadable data, `peer` is true.

    :ivar owner_id: the owner
    :ivar expires: when it ends without a renewal, an aware `datetime` of the server's clock; None
        if that is unreadable, and the lease never ends by itself
    :ivar ttl: the seconds that its owner asked for last
    """

    expires: datetime | None = None
    ttl: float = 0.0

    def __str__(self) -> str:
        if self.peer:
            return (
                f"a node without readable data, {self.path}, which never expires: look who wrote "
                "it, and delete it by hand"
            )
        where = f" ({self.host}:{self.pid})" if self.host else ""
        until = f" until {self.expires:%Y-%m-%d %H:%M:%S} UTC" if self.expires else ""
        return f"{text_in(self.owner_id)}{where}{until}"

    @classmethod
    def of(cls, path: str, term: Term | None) -> LeaseHolder:
        """Return the owner of a node with this term."""
        if term is None:
            return cls(path=path, sequence=0, token=0, session_id=0, peer=True)
        return cls(
            path=path,
            sequence=0,
            token=term.token,
            session_id=0,
            owner_id=term.owner,
            expires=term.expires,
            ttl=term.ttl,
            **place_in(term.said),
        )


def check_ttl(ttl: object) -> float:
    """Return a ``ttl=`` argument in seconds."""
    value = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"ttl must be a number of seconds or a timedelta, not {ttl!r:.80}.")
    if not 0 < value < math.inf:
        raise ValueError(
            f"ttl cannot be {ttl!r:.80}: the lease lasts for so many seconds without a renewal, so "
            "it must be above 0."
        )
    if value > LONGEST:
        raise ValueError(
            f"ttl={ttl!r:.80} is more than a year: it is in seconds. Are these milliseconds? Then "
            f"write {value // 1000}."
        )
    return float(value)


def check_owner(owner: object) -> str | None:
    """Return an ``owner=`` argument."""
    if owner is None:
        return None
    if not isinstance(owner, str):
        raise TypeError(
            f"owner must be a string, such as a task's id or 'user:42', not "
            f"{type(owner).__name__}: {owner!r:.80}. Convert it with str()."
        )
    if not owner:
        raise ValueError("owner must not be empty: all callers without a name would be one owner.")
    if len(owner) > 200:
        raise ValueError(f"owner has {len(owner)} characters, and may have 200: {owner[:40]!a}….")
    if not owner.isprintable():  # which refuses lone surrogates, too
        raise ValueError(f"owner has characters that cannot be printed: {owner!a:.80}.")
    return plain_text(owner)
