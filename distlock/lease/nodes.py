"""What the node of a lease is called, and what it says.

It is ``<root>/@leases/<znode name of the key>``: persistent, so that it outlives whoever made it.
No key's znode name has an ``@``, so leases disturb no lock and can be listed by themselves. The
parents are container nodes, which the server removes after their last child.

Its data is JSON: ``v``, ``owner``, ``ttl`` (seconds), ``attempt`` (names the call that wrote it, by
which that call knows its own write after a lost reply), ``mark``, ``token`` (from the first renewal
on), ``machine`` and ``sent`` (see `lease_clock.stamp`) and, as `Owner.describe` has it, where the
owner was when it wrote. No secrets.

Versions begin at 0 again when a node is made anew, so a version alone does not say which node was
judged: a slow contender would take over from, or delete, the next owner. So each node has one child
with a name of its own, the *mark*, and every write and delete is a transaction that needs that too.

- *Time is the server's.* A lease ends `ttl` after the ``mtime`` of its node, and "now" is the
  ``mtime`` of a write to ``@leases``. Both come from the leader's clock, so clients' clocks do not
  matter. `lease_clock` notices when that clock is set.
- *The token* is the zxid of the write by which the owner took the lease; it rises from owner to
  owner, over removed nodes too. Renewals keep it.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

from distlock.keys.templates import plain_text
from distlock.keys.znodes import Participant, pid_in, read_json, text_in, time_in
from distlock.session.lease_clock import sent_here, stamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlock.session.session import Session

#: The longest lease, in seconds: a year. More is a mistake, such as milliseconds.
LONGEST: Final = 366 * 86400.0

_MARK = re.compile(r"[0-9a-f]{32}")


def parent_of_leases(session: Session) -> str:
    """Return the path under which all leases of a session's namespace are."""
    return f"{session.root}/@leases"


@dataclass(frozen=True, slots=True)
class Term:
    """For whom, since when and for how long a lease runs, as its node says at one version."""

    owner: str
    ttl: float
    attempt: str
    token: int
    version: int
    mark: str
    #: The server's time of the last write, in milliseconds, and that write's id.
    mtime: int
    zxid: int
    #: When that write was sent, by our own clock; None where another machine has sent it.
    sent_here: float | None
    said: Mapping[str, Any]

    @classmethod
    def read(cls, data: bytes, stat: Any) -> Term | None:
        """Return what a node says, None where it is not readable."""
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
        # No write is later than the last one, so a greater token is not from this tree.
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

    def ended(self, now: int) -> bool:
        """Whether it has ended at `now`: later, not just then, for both times are rounded down."""
        return now > self.ends_at

    @property
    def expires(self) -> datetime:
        """When it ends, by the server's clock."""
        return datetime.fromtimestamp(self.ends_at / 1000, tz=timezone.utc)


def encode(
    said: Mapping[str, Any], attempt: str, ttl: float, *, mark: str, renewed: Term | None = None
) -> bytes:
    """Return a node's data: what its writer says of itself, and what is kept of a renewed term."""
    kept: dict[str, Any] = {}
    if renewed is not None:
        kept = {"token": renewed.token}
        if "since" in said and "since" in renewed.said:
            kept["since"] = renewed.said["since"]
    data = {**said, "attempt": attempt, "ttl": ttl, "mark": mark, **stamp(), **kept}
    return json.dumps(data, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder(Participant):
    """Who has a lease, as its node tells. With unreadable data, `peer` is true and the rest empty.

    :ivar owner_id: the owner
    :ivar expires: when it ends unless it is renewed, an aware `datetime` of the server's clock;
        None where that cannot be read, and it never ends by itself
    """

    expires: datetime | None = None

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
        """Return whom a node belongs to, given what it says."""
        if term is None:
            return cls(path=path, sequence=0, token=0, session_id=0, peer=True)
        said = term.said
        return cls(
            path=path,
            sequence=0,
            token=term.token,
            session_id=0,
            host=text_in(said.get("host")),
            pid=pid_in(said.get("pid")),
            worker=text_in(said.get("worker")),
            owner_id=term.owner,
            label=text_in(said.get("label")),
            since=time_in(said.get("since")),
            expires=term.expires,
        )


def check_ttl(ttl: object) -> float:
    """Return a ``ttl=`` argument in seconds.

    :raises TypeError: not a number or a timedelta
    :raises ValueError: not above 0, not finite, or more than a year
    """
    value = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"ttl is a number of seconds or a timedelta, not {ttl!r:.80}.")
    if not 0 < value < math.inf:
        raise ValueError(
            f"ttl cannot be {ttl!r:.80}: it is for how many seconds the lease lasts unless it is "
            "renewed, a number above 0."
        )
    if value > LONGEST:
        raise ValueError(
            f"ttl={ttl!r:.80} is more than a year: it is in seconds. Are these milliseconds? Then "
            f"write {value // 1000}."
        )
    return float(value)


def check_owner(owner: object) -> str | None:
    """Return an ``owner=`` argument.

    :raises TypeError: not a string
    :raises ValueError: empty, longer than 200 characters, or not printable
    """
    if owner is None:
        return None
    if not isinstance(owner, str):
        raise TypeError(
            f"owner is a string, such as a task's id or 'user:42', not {type(owner).__name__}: "
            f"{owner!r:.80}. Convert it with str()."
        )
    if not owner:
        raise ValueError("owner must not be empty: everybody without a name would be one owner.")
    if len(owner) > 200:
        raise ValueError(f"owner has {len(owner)} characters, and may have 200: {owner[:40]!a}….")
    if not owner.isprintable():  # a lone surrogate is not either
        raise ValueError(f"owner has characters that cannot be printed: {owner!a:.80}.")
    return plain_text(owner)
