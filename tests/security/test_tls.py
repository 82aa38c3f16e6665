"""TLS against a server that demands certificates: verified by default, and off only when said so.

kazoo alone accepts a certificate for any name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from kazoo.exceptions import NoAuthError

from distlock import LockUnavailable, zk_lock
from distlock.session.registry import session_for
from tests.kit.helpers import eventually, raw_client
from tests.security.certificates import KEY_PASSWORD, Authority
from tests.security.conftest import Configure, SecureServer

pytestmark = pytest.mark.usefixtures("as_shipped")


@pytest.fixture
def another_authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "another")


def under_another_name(address: str) -> str:
    """The same address by a name that the server's certificate does not have."""
    return address.replace("127.0.0.1", "localhost")


def refusal(configure: Configure, hosts: str, tls: dict[str, Any]) -> str:
    """What an acquire says that cannot connect."""
    configure(HOSTS=hosts, TLS=tls, TIMEOUT=1)
    client = session_for()._client
    eventually(lambda: client.trouble)
    with pytest.raises(LockUnavailable) as refused:
        zk_lock("key").acquire()
    message = str(refused.value)
    assert KEY_PASSWORD not in message
    return message


def test_a_certificate_of_another_authority_is_refused(
    secure_server: SecureServer, configure: Configure, another_authority: Authority
) -> None:
    tls = secure_server.tls_options(ca=str(another_authority.pem))
    message = refusal(configure, secure_server.tls, tls)
    assert "CERTIFICATE_VERIFY_FAILED" in message


def test_without_an_authority_the_systems_own_count(
    secure_server: SecureServer, configure: Configure
) -> None:
    message = refusal(configure, secure_server.tls, secure_server.tls_options(ca=None))
    assert "CERTIFICATE_VERIFY_FAILED" in message


def test_a_certificate_for_another_name_is_refused(
    secure_server: SecureServer, configure: Configure
) -> None:
    hosts = under_another_name(secure_server.tls)
    message = refusal(configure, hosts, secure_server.tls_options())
    assert "localhost" in message
    assert "CERTIFICATE_VERIFY_FAILED" in message


def test_another_name_is_accepted_only_when_said_so(
    secure_server: SecureServer, configure: Configure
) -> None:
    hosts = under_another_name(secure_server.tls)
    configure(HOSTS=hosts, TLS=secure_server.tls_options(check_hostname=False))
    with zk_lock("key"):
        pass


def test_any_certificate_is_accepted_only_when_said_so(
    secure_server: SecureServer, configure: Configure, another_authority: Authority
) -> None:
    tls = secure_server.tls_options(ca=str(another_authority.pem), verify=False)
    configure(HOSTS=under_another_name(secure_server.tls), TLS=tls)
    with zk_lock("key"):
        pass


def test_a_client_without_a_certificate_is_refused(
    secure_server: SecureServer, configure: Configure
) -> None:
    tls = secure_server.tls_options(cert=None, key=None, key_password=None)
    assert "TLS" in refusal(configure, secure_server.tls, tls)


def test_one_file_may_hold_the_certificate_and_the_key(
    secure_server: SecureServer, configure: Configure
) -> None:
    configure(HOSTS=secure_server.tls, TLS=secure_server.tls_options(key=None))
    with zk_lock("key"):
        pass


@pytest.mark.parametrize("password", ["wrong-s3cr3t", None])
def test_a_wrong_key_password_is_told_without_it(
    password: str | None, secure_server: SecureServer, configure: Configure
) -> None:
    tls = secure_server.tls_options(key_password=password)
    configure(HOSTS=secure_server.tls, TLS=tls)
    with pytest.raises(ImproperlyConfigured, match="key_password") as wrong:
        zk_lock("key").acquire()
    assert "s3cr3t" not in str(wrong.value)


@pytest.mark.parametrize("name", ["ca", "cert", "key"])
def test_a_file_that_is_missing_is_named(
    name: str, secure_server: SecureServer, configure: Configure, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing.pem")
    configure(HOSTS=secure_server.tls, TLS=secure_server.tls_options(**{name: missing}))
    with pytest.raises(ImproperlyConfigured, match=f"{name} {missing}"):
        zk_lock("key").acquire()


def test_the_certificate_is_a_credential_for_the_acl_of_the_creator(
    secure_server: SecureServer, configure: Configure
) -> None:
    """Where clients have certificates, ACL "creator" needs no AUTH."""
    configure(HOSTS=secure_server.tls, TLS=secure_server.tls_options(), ACL="creator")
    with zk_lock("key") as hold, raw_client(secure_server.plain) as stranger:
        with pytest.raises(NoAuthError):
            stranger.delete(hold.path)
        hold.verify()
