"""A session with too many nodes would take the ensemble down when it ends (ZOOKEEPER-4306)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import Settings

from distlock import LockUnavailable, TooManyLocks, zk_lock
from distlock.owner.owner import current
from distlock.session import session
from distlock.session.registry import close_sessions, session_for
from tests.kit.engines import tree_at
from tests.kit.helpers import eventually

LIMIT = 4000


@pytest.fixture(autouse=True)
def limited(distlock_settings: Settings) -> Iterator[None]:
    options = distlock_settings.DISTLOCK["default"]
    distlock_settings.DISTLOCK = {"default": {**options, "MAX_NODE_BYTES": LIMIT}}
    yield
    current().release_all()


def take_all() -> tuple[list[str], TooManyLocks]:
    """Take locks until one is refused; return the keys of those taken, and the refusal."""
    taken: list[str] = []
    while True:
        key = f"key-{len(taken)}"
        try:
            zk_lock(key).acquire()
        except TooManyLocks as error:
            return taken, error
        taken.append(key)


def test_one_lock_too_many_is_refused_before_it_is_sent() -> None:
    taken, refusal = take_all()
    assert refusal.key == f"key-{len(taken)}"
    assert isinstance(refusal, LockUnavailable)
    nodes = session_for().nodes
    assert len(nodes.paths()) == len(taken) > LIMIT / 200
    assert LIMIT * 0.7 < nodes.total <= LIMIT
    assert nodes.total == sum(len(path) + 4 for path in nodes.paths())


def test_what_is_taken_and_released_is_not_counted_for_ever() -> None:
    for number in range(LIMIT // 20):
        with zk_lock(f"key-{number % 3}"):
            pass
    eventually(lambda: session_for().nodes.total == 0)


def test_an_orderly_end_deletes_many_nodes_in_batches(
    monkeypatch: pytest.MonkeyPatch, distlock_settings: Settings
) -> None:
    monkeypatch.setattr(session, "MANY_BYTES", 1000)
    monkeypatch.setattr(session, "BATCH", 7)
    batches: list[int] = []
    real = session._deletions

    def note(paths: list[str], make: object) -> list[object]:
        batches.append(len(paths))
        return real(paths, make)  # type: ignore[arg-type]

    monkeypatch.setattr(session, "_deletions", note)
    taken, _ = take_all()
    options = distlock_settings.DISTLOCK["default"]
    monkeypatch.setattr(session_for()._client, "say_goodbye", lambda _: None)
    client = session_for()._client
    close_sessions()
    assert sum(batches) == len(taken)
    assert max(batches) == 7
    with tree_at(options["HOSTS"], options["NAMESPACE"]) as tree:
        assert not tree.lock_nodes()
    type(client).say_goodbye(client, 1)
