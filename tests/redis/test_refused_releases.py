"""A release that the server refuses for a while is repeated, so no lock stays taken for that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from distlock import zk_lock
from distlock_chaos.redis_server import REFUSALS
from tests.kit.helpers import eventually, logged
from tests.kit.services import Redis
from tests.kit.tools import PATIENCE, await_connection, forgets_all
from tests.redis.test_bad_input import await_no_nodes


@pytest.mark.parametrize("error", sorted(REFUSALS))
def test_a_refused_release_is_repeated_and_reported_once(
    use: Callable[..., None], caplog: pytest.LogCaptureFixture, error: str
) -> None:
    with Redis() as server:
        use(server.hosts, SESSION_TIMEOUT=20)
        lock = zk_lock("key")
        lock.acquire()
        session = await_connection()
        before = session.id
        with server.refusing(error):
            lock.release()
            eventually(lambda: refused(caplog) or not session.connected, PATIENCE, "a refusal")
        await_no_nodes(server)
        assert session.id == before
        forgets_all(session)
        # A server that is no primary any more is left, and reported as an outage.
        assert len(refused(caplog)) == (error != "READONLY")


def refused(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in logged(caplog) if "could not be deleted" in line]
