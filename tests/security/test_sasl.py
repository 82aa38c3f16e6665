"""SASL (DIGEST-MD5), against a server with a JAAS file: who one is, and with a wrong password."""

from __future__ import annotations

import pytest

from distlock import LockUnavailable, zk_lock
from distlock.session.registry import session_for
from tests.kit.helpers import eventually, raw_client
from tests.kit.tools import within
from tests.security.conftest import SASL_PASSWORD, SASL_USER, Configure, SecureServer

AUTH = [("sasl", f"{SASL_USER}:{SASL_PASSWORD}")]


def test_a_lock_node_belongs_to_the_user_of_sasl(
    secure_server: SecureServer, configure: Configure
) -> None:
    configure(HOSTS=secure_server.plain, AUTH=AUTH, ACL="creator")
    options = {"mechanism": "DIGEST-MD5", "username": SASL_USER, "password": SASL_PASSWORD}
    with (
        zk_lock("key") as hold,
        raw_client(secure_server.plain, sasl_options=options) as colleague,
    ):
        (owner,) = colleague.get_acls(hold.path)[0]
        assert (owner.id.scheme, owner.id.id) == ("sasl", SASL_USER)


@pytest.mark.parametrize("credentials", [f"{SASL_USER}:wrong-s3cr3t", "nobody:wrong-s3cr3t"])
def test_wrong_credentials_are_told_so_without_the_secret(
    credentials: str, secure_server: SecureServer, configure: Configure
) -> None:
    configure(HOSTS=secure_server.plain, AUTH=[("sasl", credentials)], TIMEOUT=30)
    with (
        within(5),
        pytest.raises(LockUnavailable, match="refused the credentials in AUTH") as refused,
    ):
        zk_lock("key").acquire()
    assert "s3cr3t" not in str(refused.value)


def test_a_caller_who_comes_after_the_refusal_is_told_too(
    secure_server: SecureServer, configure: Configure
) -> None:
    configure(HOSTS=secure_server.plain, AUTH=[("sasl", f"{SASL_USER}:wrong")])
    session = session_for()
    eventually(lambda: session.over)
    assert "refused the credentials in AUTH" in str(session.unavailable("key"))
