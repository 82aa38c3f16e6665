"""TLS, Unix sockets and guarded Sentinels, with passwords and a database in the URL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from distlock import zk_lock
from distlock.session.registry import close_sessions, session_for
from distlock_chaos.ports import free_ports
from distlock_chaos.redis_sentinel import SERVICE, Sentinel
from tests.kit.services import Redis
from tests.kit.tools import PATIENCE, MakeOwner
from tests.redis.tools import SECRET, refusal
from tests.security.certificates import KEY_PASSWORD, Authority
from tests.workers.master import assert_reaper_frees_the_lock_of_a_killed_child

PASSWORD = f"{SECRET} of the shop"
QUOTED = f"{SECRET}%20of%20the%20shop"
SENTINEL_PASSWORD = f"{SECRET}-of-the-sentinels"


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server that wants a password, and on its port for TLS a certificate.

    :ivar certificate: a file with its key and its certificate
    :ivar client: a file with those of a client that it trusts
    """

    redis: Redis
    port: int
    socket: Path
    authority: Authority
    certificate: Path
    client: Path

    def url(self, host: str = "127.0.0.1", **changes: Any) -> str:
        """Return the URL that this server accepts, with changes; None removes an option."""
        options = {
            "ssl_ca_certs": self.authority.pem,
            "ssl_certfile": self.client,
            "ssl_keyfile": self.client,
            "ssl_password": KEY_PASSWORD,
            **changes,
        }
        return f"rediss://:{QUOTED}@{host}:{self.port}/3?{query(options)}"

    def url_by(self, sentinels: str, **changes: Any) -> str:
        """Return the URL by which these Sentinels name this server."""
        _, _, options = self.url().partition("?")
        return f"rediss+sentinel://:{QUOTED}@{sentinels}/3?{options}&{query(changes)}"

    @property
    def local(self) -> str:
        """The URL of its Unix socket."""
        return f"unix://:{QUOTED}@{self.socket}?db=2"


def query(options: Mapping[str, Any]) -> str:
    return "&".join(f"{name}={value}" for name, value in options.items() if value is not None)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder / "authority")
    certificate = authority.issue("server", address="127.0.0.1")
    (port,) = free_ports(1)
    options = {
        "tls-port": str(port),
        "tls-cert-file": str(certificate),
        "tls-key-file": str(certificate),
        "tls-ca-cert-file": str(authority.pem),
        "unixsocket": str(folder / "redis.sock"),
        "requirepass": PASSWORD,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    with Redis(*words) as redis:
        yield Server(
            redis=redis,
            port=port,
            socket=folder / "redis.sock",
            authority=authority,
            certificate=certificate,
            client=authority.issue("client", password=KEY_PASSWORD),
        )


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger") / "authority")


def way(server: Server, name: str) -> str:
    return {"tls": server.url(), "unix": server.local}[name]


@pytest.mark.parametrize(("name", "database"), [("tls", "db3"), ("unix", "db2")])
def test_locks_pass_from_session_to_session(
    server: Server, use: Callable[[str], None], make_owner: MakeOwner, name: str, database: str
) -> None:
    use(way(server, name))
    rival = make_owner()
    first, second = zk_lock("key"), zk_lock("key", using="other", timeout=PATIENCE)
    for _ in range(20):
        with first as hold:
            hold.verify()
            waiting = rival.submit(second.acquire)
        assert waiting.result(PATIENCE)
        rival.now(second.release)
    assert session_for().server == {"tls": f"127.0.0.1:{server.port}"}.get(name, str(server.socket))
    assert database in server.redis.ask("INFO", "keyspace", password=PASSWORD)


@pytest.mark.parametrize("name", ["tls", "unix"])
def test_the_session_reaper_frees_the_lock_of_a_killed_child(
    server: Server, namespace: str, name: str
) -> None:
    said = assert_reaper_frees_the_lock_of_a_killed_child(way(server, name), namespace)
    assert SECRET not in said


def test_a_certificate_of_another_authority_is_refused(
    server: Server, use: Callable[[str], None], stranger: Authority
) -> None:
    use(server.url(ssl_ca_certs=stranger.pem))
    assert "CERTIFICATE_VERIFY_FAILED" in refusal()


def test_a_certificate_for_another_name_is_refused(
    server: Server, use: Callable[[str], None]
) -> None:
    use(server.url("localhost"))
    message = refusal()
    assert "'localhost'" in message
    assert "Check the ssl_ options in HOSTS." in message
    close_sessions()
    use(server.url("localhost", ssl_check_hostname="false"))
    with zk_lock("key"):
        pass


def test_any_certificate_is_accepted_only_when_said_so(
    server: Server, use: Callable[[str], None], stranger: Authority
) -> None:
    use(server.url("localhost", ssl_ca_certs=stranger.pem, ssl_cert_reqs="none"))
    with zk_lock("key"):
        pass


def test_a_client_without_a_certificate_is_refused(
    server: Server, use: Callable[[str], None]
) -> None:
    use(server.url(ssl_certfile=None, ssl_keyfile=None, ssl_password=None))
    assert "cannot be used with TLS" in refusal()


@pytest.mark.parametrize(
    "change", [{"ssl_ca_certs": "/nowhere"}, {"ssl_password": f"{SECRET}-wrong"}]
)
def test_files_that_cannot_be_read_are_named(
    server: Server, use: Callable[[str], None], change: dict[str, str]
) -> None:
    use(server.url(**change))
    with pytest.raises(ImproperlyConfigured) as refused:
        zk_lock("key").acquire()
    message = str(refused.value)
    assert "DISTLOCK['default']['HOSTS'] cannot be used" in message
    ca = change.get("ssl_ca_certs", server.authority.pem)
    assert f"(ssl_ca_certs {ca}, ssl_certfile {server.client}" in message
    assert SECRET not in message


# --- Sentinels -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """A Sentinel of a server, with a password of its own, and a port for TLS beside the other."""

    sentinel: Sentinel
    tls_port: int
    server: Server

    def url(self, *, service: str = SERVICE, tls: bool = True, **options: Any) -> str:
        port = self.tls_port if tls else self.sentinel.port
        return self.server.url_by(f"127.0.0.1:{port}/{service}", **options)


@pytest.fixture(scope="module")
def guarded(server: Server) -> Iterator[Guarded]:
    (tls_port,) = free_ports(1)
    lines = (
        f"tls-port {tls_port}",
        f"tls-cert-file {server.certificate}",
        f"tls-key-file {server.certificate}",
        f"tls-ca-cert-file {server.authority.pem}",
        "tls-replication yes",  # how it asks the server
        f'sentinel auth-pass {SERVICE} "{PASSWORD}"',
        f'requirepass "{SENTINEL_PASSWORD}"',
    )
    with Sentinel(server.port, 1, *lines) as sentinel:
        yield Guarded(sentinel=sentinel, tls_port=tls_port, server=server)


@pytest.mark.parametrize("options", [{}, {"tls": False, "sentinel_ssl": "false"}])
def test_sentinels_want_a_password_of_their_own_and_tls_too(
    guarded: Guarded, use: Callable[..., None], options: dict[str, Any]
) -> None:
    url = guarded.url(sentinel_password=SENTINEL_PASSWORD, **options)
    use(url, TIMEOUT=PATIENCE, CONNECT_TIMEOUT=PATIENCE)
    with zk_lock("key") as hold:
        hold.verify()
    assert session_for().server == f"127.0.0.1:{guarded.server.port}"
