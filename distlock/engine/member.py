"""Describes one server, as `doctor` and the admin page show it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One server.

    :ivar address: as in ``HOSTS``, without credentials
    :ivar reachable: whether it accepted a connection
    :ivar role: ``leader``, ``follower``, ``observer`` or ``standalone``, of Redis ``primary`` or
        ``replica``; empty if unknown
    :ivar serving: False if it reports that it serves nobody, for want of a quorum
    :ivar version: such as ``3.8.0-…``, empty if unknown
    :ivar seconds: the time that its answer took
    :ivar error: the reason why it could not be reached
    """

    address: str
    reachable: bool = False
    role: str = ""
    serving: bool = True
    version: str = ""
    seconds: float = 0.0
    error: str = ""
