"""Fixtures of the security tests: a server with TLS and SASL, and what its clients have to know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from distlock.owner.owner import current
from distlock.session.registry import close_sessions
from distlock_chaos.ports import free_ports
from distlock_chaos.server import ServerNotInstalled, ZooKeeper
from tests.security.certificates import KEY_PASSWORD, Authority

SASL_USER = "shop"
SASL_USERS = (SASL_USER, "operator", "auditor")
SASL_PASSWORD = "s3cr3t-of-sasl"

#: Sets the options of the alias "default" beside those that every test has.
Configure = Callable[..., None]


@dataclass(frozen=True)
class SecureServer:
    """A server that knows a user by SASL on `plain`, and demands a certificate on `tls`."""

    zookeeper: ZooKeeper
    #: host:port without TLS
    plain: str
    #: host:port with TLS; its certificate is good for this address only
    tls: str
    authority: Authority
    #: A file with the key and the certificate of a client that the server trusts.
    client: Path

    def tls_options(self, **changes: Any) -> dict[str, Any]:
        """The value of ``TLS`` that this server accepts, with changes; None removes an option."""
        options = {
            "ca": str(self.authority.pem),
            "cert": str(self.client),
            "key": str(self.client),
            "key_password": KEY_PASSWORD,
            **changes,
        }
        return {name: value for name, value in options.items() if value is not None}


@pytest.fixture(scope="session")
def secure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    folder = tmp_path_factory.mktemp("security")
    authority = Authority(folder / "authority")
    jaas = folder / "jaas.conf"
    jaas.write_text(
        "Server { org.apache.zookeeper.server.auth.DigestLoginModule required "
        + " ".join(f'user_{user}="{SASL_PASSWORD}"' for user in SASL_USERS)
        + "; };\n"
    )
    (port,) = free_ports(1)
    zookeeper = ZooKeeper(
        config={
            "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "secureClientPort": str(port),
            "secureClientPortAddress": "127.0.0.1",
            "ssl.keyStore.location": str(authority.issue("server", address="127.0.0.1")),
            "ssl.trustStore.location": str(authority.pem),
            "ssl.clientAuth": "need",
        },
        jvm=[f"-Djava.security.auth.login.config={jaas}"],
    )
    try:
        zookeeper.start()
    except ServerNotInstalled as error:
        pytest.skip(str(error))
    with zookeeper:
        yield SecureServer(
            zookeeper=zookeeper,
            plain=zookeeper.hosts,
            tls=f"127.0.0.1:{port}",
            authority=authority,
            client=authority.issue("client", password=KEY_PASSWORD),
        )


@pytest.fixture
def configure(settings: Settings, namespace: str) -> Iterator[Configure]:
    """Call it with the options of "default"; called again, sessions begin anew."""

    def configure(**options: Any) -> None:
        # Java takes its time for a first handshake.
        times = {"SESSION_TIMEOUT": 15, "TIMEOUT": 15, "CONNECT_TIMEOUT": 10}
        settings.DISTLOCK = {"default": {"NAMESPACE": namespace} | times | options}

    yield configure
    current().release_all()  # what a failed test has left must not fail the next
    close_sessions()
