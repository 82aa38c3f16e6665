"""Lost replies, ended sessions and missing parents, one answer at a time.

Nodes of an earlier session, orphans, and parents that are removed in between.
"""

from __future__ import annotations

import pytest

from distlock.engine.errors import NoAuth
from distlock.session import guaranteed_delete
from tests.contenders.tools import holds
from tests.kit.fake_session import FakeSession, Tree
from tests.kit.helpers import eventually


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("request_", ["children", "read"])
def test_a_search_that_the_server_refuses_leaves_no_node(
    monkeypatch: pytest.MonkeyPatch, request_: str, leaves: bool
) -> None:
    """Such as Redis' -BUSY just after a reconnection: nobody else knows of the node."""
    monkeypatch.setattr(guaranteed_delete, "REFUSED_SECONDS", (0, 0))
    tree = Tree()
    session = FakeSession(tree)
    session.lose_reply_of_create = True
    place = session.join()
    session.fails[request_] = NoAuth()
    tree.answer_one()  # the create, whose reply is lost
    while request_ == "read" and not tree.sent["read"]:
        tree.answer_one()
    if leaves:
        place.leave()

    def done() -> bool:
        tree.answer()
        return holds(place) or not tree.nodes

    eventually(done)
    assert holds(place) is (request_ == "children" and not leaves)
    place.leave()
    tree.answer()
    assert not tree.nodes
