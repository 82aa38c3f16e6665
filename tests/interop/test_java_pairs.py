"""Each recipe of ours with each of Curator's on one path: they exclude, are refused, or never meet.

`docs/reference/curator.md` has the same table. What Curator does with a node of ours that it does
not know, nobody but Curator can change: some of its recipes come in beside our holder. Then the
next of ours raises `IncompatiblePeer`, and a leader loses the leadership.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from distlock import IncompatiblePeer, LockLost, zk_leader
from distlock.inspection.state import LEADER
from distlock.session.registry import session_for
from tests.interop.tools import KEY, InJava, InPython, JavaPeer
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, MakeOwner, Tree

pytestmark = [
    pytest.mark.deep,
    pytest.mark.parametrize("newer", [True], indirect=True, ids=["5.7"]),
]

#: Families of recipes that exclude within themselves.
MUTEXES = ("mutex", "selector")
READ_WRITE = ("read", "write")
SEMAPHORES = ("semaphore=1", "semaphore-mutex")
OURS = ("mutex", "leader", *READ_WRITE, *SEMAPHORES)
CURATORS = (*MUTEXES, *READ_WRITE, *SEMAPHORES, "latch")


def outcome(ours: str, curators: str) -> str:
    """What the table in the documentation says of two recipes."""
    if (ours in SEMAPHORES) != (curators in SEMAPHORES):
        return "apart"
    if curators == "latch":
        return "refused"
    if ours in SEMAPHORES:
        return "exclude"
    if ours == curators == "read":
        return "share"
    return "exclude" if (ours in READ_WRITE) == (curators in READ_WRITE) else "refused"


@pytest.fixture
def java_at(java: JavaPeer, tree: Tree) -> Callable[[str], InJava]:
    """Returns a contender in Java on the path where a recipe of ours has its nodes."""

    def at(ours: str) -> InJava:
        path = tree.path(KEY)
        return InJava(java, f"{tree.namespace}/{LEADER}{KEY}" if ours == "leader" else path)

    return at


@pytest.mark.parametrize("curators", CURATORS)
@pytest.mark.parametrize("ours", OURS)
def test_where_java_holds(
    java_at: Callable[[str], InJava], tree: Tree, make_owner: MakeOwner, ours: str, curators: str
) -> None:
    peer, python = java_at(ours), InPython(make_owner(), "default")
    assert peer.acquire(curators)
    expected = outcome(ours, curators)
    if expected == "refused":
        with pytest.raises(IncompatiblePeer, match="Curator's"):
            python.acquire(ours, timeout=2)
    else:
        assert python.acquire(ours, timeout=0) == (expected != "exclude")
        if expected != "exclude":
            python.release(ours)
    peer.release(curators)
    if expected == "refused":  # also while the node of a latch or a selector is on its way out
        eventually(lambda: not tree.children(peer.path), PATIENCE, "no node of Java's")
    assert python.acquire(ours)
    python.release(ours)


@pytest.mark.parametrize("curators", CURATORS)
@pytest.mark.parametrize("ours", OURS)
def test_where_python_holds(
    java_at: Callable[[str], InJava], make_owner: MakeOwner, ours: str, curators: str
) -> None:
    python, peer = InPython(make_owner(), "default"), java_at(ours)
    assert python.acquire(ours)
    expected = outcome(ours, curators)
    if expected == "exclude":
        assert not peer.acquire(curators, timeout=0.1)
    else:
        assert peer.acquire(curators)
    if expected == "refused":
        with pytest.raises(IncompatiblePeer, match="Curator's"):
            InPython(make_owner(), "other").acquire(ours, timeout=2)
    if expected != "exclude":
        peer.release(curators)
    python.release(ours)
    assert peer.acquire(curators)
    peer.release(curators)


def test_a_leader_that_meets_a_latch_has_lost(
    java_at: Callable[[str], InJava], make_owner: MakeOwner
) -> None:
    owner, peer, leader = make_owner(), java_at("leader"), zk_leader(KEY)
    hold = owner.now(leader.__enter__)
    eventually(
        lambda: all(place._watches_line for place in leader._candidates),
        PATIENCE,
        "a heartbeat",
    )
    assert peer.acquire("latch")
    eventually(lambda: hold.lost and not leader.is_leader, PATIENCE, "a lost leadership")
    with pytest.raises(LockLost):
        owner.now(leader.release)
    peer.release("latch")
    session = session_for()
    eventually(lambda: not session.watches.watchers, PATIENCE, "no watch left")
