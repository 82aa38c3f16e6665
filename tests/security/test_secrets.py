"""What is secret is in no log, node, repr, error, pickle, traceback, check or debug page.

The secrets: credentials of AUTH, the password of the TLS key, and the session's own password, with
which anybody takes the session over. Node data says who holds, or with NODE_DATA "owner" the
owner's id only.
"""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.views.debug import ExceptionReporter
from pytest_django import Settings

from distlock import LockBusy, LockUnavailable, zk_lock
from distlock.conf import configuration
from distlock.session.registry import session_for
from distlock.session.session import Session
from distlock_chaos.proxy import TcpProxy
from tests.kit.helpers import eventually, raw_client
from tests.kit.tools import inside
from tests.security.certificates import KEY_PASSWORD
from tests.security.conftest import SASL_PASSWORD, SASL_USER, Configure, SecureServer

DIGEST_PASSWORD = "s3cr3t-of-the-shop"
DIGEST = ("digest", f"shop:{DIGEST_PASSWORD}")
SASL = ("sasl", f"{SASL_USER}:{SASL_PASSWORD}")
SECRETS = (DIGEST_PASSWORD, SASL_PASSWORD, KEY_PASSWORD)


def told(text: str, *more: str) -> list[str]:
    """The secrets that can be read in a text."""
    return [secret for secret in (*SECRETS, *more) if secret in text]


def password_of(session: Session) -> list[str]:
    """The spellings of a session's password."""
    _, password = session._client.credentials
    return [bytes(password).hex(), repr(bytes(password))]


@pytest.fixture
def all_secrets(secure_server: SecureServer, configure: Configure) -> Callable[..., None]:
    """Call it with other options; connects to the server by TLS with every credential there is."""

    def use(**options: Any) -> None:
        tls = secure_server.tls_options()
        configure(**({"HOSTS": secure_server.tls, "AUTH": [DIGEST, SASL], "TLS": tls} | options))

    use(ACL="creator")
    return use


@pytest.mark.parametrize("level", [logging.DEBUG, 1], ids=["DEBUG", "everything"])
@pytest.mark.parametrize("link", ["digest", "sasl"])
def test_no_logger_tells_a_secret(
    link: str,
    level: int,
    secure_server: SecureServer,
    configure: Configure,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(level)
    port = secure_server.zookeeper.servers[0].port
    with TcpProxy("127.0.0.1", port) as proxy:
        configure(HOSTS=proxy.address, AUTH=[DIGEST if link == "digest" else SASL], ACL="creator")
        session = session_for()
        with zk_lock("key"):
            password = password_of(session)
            proxy.cut()
            eventually(lambda: not session.connected)
            proxy.restore()
            eventually(lambda: session.connected)
        session.close()
    assert "Connecting to" in caplog.text  # kazoo was listened to
    assert told(caplog.text, *password, "SASL(") == []


@pytest.mark.usefixtures("all_secrets")
def test_no_logger_tells_the_password_of_the_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    with zk_lock("key"):
        password = password_of(session_for())
    assert "Connecting to" in caplog.text
    assert told(caplog.text, *password) == []


@pytest.mark.usefixtures("all_secrets")
def test_a_node_tells_who_holds_and_no_secret(secure_server: SecureServer) -> None:
    options = {"mechanism": "DIGEST-MD5", "username": SASL_USER, "password": SASL_PASSWORD}
    with (
        zk_lock("key") as hold,
        raw_client(secure_server.plain, sasl_options=options, auth_data=[DIGEST]) as colleague,
    ):
        data, _ = colleague.get(hold.path)
        assert json.loads(data)["pid"]
        assert told(data.decode(), *password_of(session_for())) == []


def test_node_data_can_be_reduced_to_the_id_of_the_owner(
    secure_server: SecureServer, configure: Configure
) -> None:
    configure(HOSTS=secure_server.plain, NODE_DATA="owner")
    with zk_lock("key") as hold, raw_client(secure_server.plain) as client:
        assert set(json.loads(client.get(hold.path)[0])) == {"v", "owner"}


@pytest.mark.usefixtures("all_secrets")
def test_no_repr_tells_a_secret() -> None:
    lock = zk_lock("key")
    with lock as hold:
        session = session_for()
        shown = [configuration(), lock, hold, session, session._client, inside(session)._connection]
        text = " ".join(map(repr, shown)) + " ".join(map(str, shown))
        assert told(text, *password_of(session)) == []


FAILURES: dict[str, dict[str, Any]] = {
    "wrong credentials": {"AUTH": [("sasl", f"{SASL_USER}:wrong-{DIGEST_PASSWORD}")]},
    "a wrong host name": {"HOSTS": "localhost"},
    "a wrong key password": {"key_password": f"wrong-{KEY_PASSWORD}"},
    "nobody there": {"HOSTS": "127.0.0.1:1"},
    "a wrong setting": {"TLS": {"verfy": True}},
}


def fail_by(options: dict[str, Any], use: Callable[..., None], server: SecureServer) -> None:
    port = server.tls.rpartition(":")[2]
    password = {key: value for key, value in options.items() if key == "key_password"}
    use(
        HOSTS=options.get("HOSTS", server.tls).replace("localhost", f"localhost:{port}"),
        AUTH=options.get("AUTH", [DIGEST]),
        TLS=server.tls_options(**password) | options.get("TLS", {}),
        TIMEOUT=0.5,
        CONNECT_TIMEOUT=0.5,
    )


@pytest.mark.parametrize("failure", FAILURES)
def test_no_error_tells_a_secret_not_even_the_mail_that_shows_variables_and_settings(
    failure: str, all_secrets: Callable[..., None], secure_server: SecureServer
) -> None:
    fail_by(FAILURES[failure], all_secrets, secure_server)
    with pytest.raises((LockUnavailable, ImproperlyConfigured)) as caught:
        zk_lock("key").acquire()
    error = caught.value
    reporter = ExceptionReporter(None, type(error), error, error.__traceback__)
    mail = reporter.get_traceback_html()
    assert "CONNECT_TIMEOUT" in mail
    assert told(mail) == []
    assert told(f"{error!r} {error} {vars(error)} {error.__cause__!r}") == []
    assert told(pickle.dumps(error).decode("latin-1")) == []


@pytest.mark.usefixtures("all_secrets")
def test_the_error_of_a_busy_lock_can_be_pickled_and_tells_no_secret(settings: Settings) -> None:
    default = settings.DISTLOCK["default"]
    settings.DISTLOCK = {"default": default, "other": default}
    with zk_lock("key"), pytest.raises(LockBusy) as caught:
        zk_lock("key", using="other", timeout=0).__enter__()
    pickled = pickle.dumps(caught.value)
    assert pickle.loads(pickled).holder == caught.value.holder  # noqa: S301
    passwords = [*password_of(session_for()), *password_of(session_for("other"))]
    assert told(pickled.decode("latin-1") + repr(caught.value), *passwords) == []


def test_no_system_check_tells_a_secret(settings: Settings) -> None:
    settings.DISTLOCK = {
        "default": {
            "HOSTS": f"shop:{DIGEST_PASSWORD}@zk1:2181",
            "AUTH": [("digest", f"shop:{DIGEST_PASSWORD}", SASL_PASSWORD)],
            "ACL": (f"shop:{DIGEST_PASSWORD}",),
            "TLS": {"key_pasword": KEY_PASSWORD},
            "AUHT": [DIGEST],
        },
        "other": {"AUTH": f"shop:{DIGEST_PASSWORD}", "TLS": {"key_password": KEY_PASSWORD}},
    }
    messages = run_checks(include_deployment_checks=True)
    mine = [message for message in messages if (message.id or "").startswith("distlock.E")]
    assert len(mine) == 6
    assert told(" ".join(map(str, messages))) == []
