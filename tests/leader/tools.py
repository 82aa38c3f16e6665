"""Tools of the leader tests."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kazoo.handlers.threading import KazooTimeoutError

from tests.helpers import eventually
from tests.mutex.tools import PATIENCE, expire

if TYPE_CHECKING:
    from distlock.session import Session


def expire_for_certain(hosts: str, session: Session) -> None:
    """End a session on the server, however often its client takes it back from the thief."""
    number = session.id

    def expired() -> bool:
        with suppress(KazooTimeoutError):
            expire(hosts, session)
            return True
        return session.id != number

    eventually(expired, 4 * PATIENCE, "an expired session")  # kazoo gives up after one of them
