"""Sessions of the embedded server: their timeouts, their ends, and how they go on."""

from __future__ import annotations

import pytest

from distlock.embedded.server import EmbeddedZooKeeper
from tests.embedded.raw import RawClient

CREATE, PING, CLOSE, SET_WATCHES = 1, 11, -11, 101


@pytest.mark.parametrize(("asked", "granted"), [(0.01, 500), (7, 7000), (900, 40000), (-1, 500)])
def test_the_timeout_is_negotiated(embedded: EmbeddedZooKeeper, asked: float, granted: int) -> None:
    with RawClient(embedded.port) as raw:
        assert raw.greet(asked).timeout == granted


@pytest.mark.parametrize("password", [b"", bytes(16), b"x" * 1000])
def test_another_password_does_not_get_a_session(
    embedded: EmbeddedZooKeeper, password: bytes
) -> None:
    with RawClient(embedded.port) as owner, RawClient(embedded.port) as thief:
        began = owner.greet(30)
        assert thief.greet(30, began.session_id, password) == (0, 0, bytes(16))
        assert thief.closed()
        assert owner.ask(PING)[0] == 0
