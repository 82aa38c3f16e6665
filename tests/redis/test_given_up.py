"""The server refuses calls of a connection that its client has given up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import Settings
from redis import Redis as RedisPy
from redis.exceptions import ResponseError

from distlock import zk_lock
from distlock.conf import configuration
from distlock.engine.redis.requests import beginning, call, session_arguments
from distlock.session.registry import close_sessions
from distlock_chaos.proxy import TcpProxy
from tests.kit.helpers import eventually
from tests.kit.services import Redis
from tests.kit.tools import PATIENCE, MakeOwner, await_connection, inside


@pytest.fixture
def link(redis: Redis, settings: Settings, namespace: str) -> Iterator[TcpProxy]:
    """The way of the alias "other" to a server that "default" reaches by itself."""
    with TcpProxy("127.0.0.1", redis.port) as link:
        default = {"HOSTS": redis.hosts, "NAMESPACE": namespace, "TIMEOUT": PATIENCE}
        other = {**default, "HOSTS": f"redis://{link.address}/0"}
        settings.DISTLOCK = {"default": default, "other": other}
        yield link
        close_sessions()


def test_a_create_that_arrives_late_leaves_no_node(link: TcpProxy, make_owner: MakeOwner) -> None:
    owner = make_owner()
    session = await_connection("other")
    before = session.id
    link.hold_back()
    acquired = owner.submit(zk_lock("key", using="other").__enter__)
    eventually(lambda: session._in_flight, PATIENCE, "a create under way")
    inside(session).drop()
    hold = acquired.result(PATIENCE)
    link.pass_through()  # the create of the connection before arrives
    eventually(lambda: link.connections == 1, PATIENCE, "the end of that connection")
    assert zk_lock("key").participants() == [zk_lock("key").holder()]
    owner.now(zk_lock("key", using="other").release)
    with zk_lock("key") as next_hold:
        assert next_hold.token > hold.token
    assert session.id == before


@pytest.mark.usefixtures("link")
@pytest.mark.parametrize("what", ["connect", "watch", "unwatch"])
def test_a_call_of_a_former_connection_is_refused(what: str) -> None:
    session, conf = await_connection("other"), configuration("other")
    late = {
        "connect": beginning(conf, 0),
        "watch": session.make.listing("/", print),
        "unwatch": session.make.unwatching("/"),
    }[what]
    number, password = inside(session).credentials
    former = session_arguments(conf, number, password, 0)
    client: Any = RedisPy.from_url(conf.hosts)
    with client, pytest.raises(ResponseError, match="SESSIONOVER"):
        client.execute_command(*call(former, late))
    assert await_connection("other") is session
    with zk_lock("key", using="other") as hold:
        hold.verify()
