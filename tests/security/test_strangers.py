"""Every client whose requests the server answers may end any session, whatever ACLs say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from distlock import zk_lock
from distlock.engine.protocol import Finding
from distlock.management.subcommands.doctor import diagnose
from distlock_chaos.server import ServerNotInstalled, ZooKeeper
from tests.kit.tools import PATIENCE, await_connection
from tests.premises.test_zookeeper import password_of
from tests.security.conftest import Configure, SecureServer

AUTH = [("digest", "shop:s3cr3t-of-the-shop")]


def end(hosts: str, session_id: int) -> None:
    """Try to end a session with its id alone."""
    stranger = KazooClient(hosts, client_id=(session_id, password_of(session_id)))
    try:
        stranger.start(timeout=PATIENCE)
    except (KazooException, KazooTimeoutError):
        pass
    finally:
        stranger.stop()
        stranger.close()


@pytest.fixture(scope="module")
def enforcing() -> Iterator[ZooKeeper]:
    """A server that answers those only who have shown credentials."""
    zookeeper = ZooKeeper(config={"enforce.auth.enabled": "true", "enforce.auth.schemes": "digest"})
    try:
        zookeeper.start()
    except ServerNotInstalled as error:
        pytest.skip(str(error))
    with zookeeper:
        yield zookeeper


def strangers() -> Finding:
    found = {one.subject: one for one in diagnose(timeout=PATIENCE)}
    assert "strangers" in found, found
    return found["strangers"]


def test_doctor_warns_where_a_stranger_is_served(
    zookeeper: ZooKeeper, configure: Configure
) -> None:
    configure(HOSTS=zookeeper.hosts, AUTH=AUTH, ACL="creator")
    found = strangers()
    assert found.level == "warning"
    assert "without credentials is served" in found.message
    assert "enforce.auth.enabled" in found.advice


def test_where_credentials_are_enforced_a_stranger_ends_nothing(
    enforcing: ZooKeeper, configure: Configure
) -> None:
    configure(HOSTS=enforcing.hosts, AUTH=AUTH, ACL="creator")
    assert strangers().level == "ok"
    session = await_connection()
    number = session.id
    with zk_lock("key") as hold:
        end(enforcing.hosts, number)
        hold.verify(timeout=PATIENCE)
        assert session.id == number


@pytest.mark.deep
def test_a_server_that_wants_a_certificate_serves_no_stranger(
    secure_server: SecureServer, configure: Configure
) -> None:
    configure(HOSTS=secure_server.tls, TLS=secure_server.tls_options(), ACL="creator")
    await_connection()  # Java takes its time for a first handshake
    assert strangers().level == "ok"
