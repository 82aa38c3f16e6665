"""The three roles of the setting ACL, on a real server, with digest and with SASL.

The app takes locks; operators look, ask to leave, break and set the ACL; readers look.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.protocol.serialization import GetACL, GetChildren
from kazoo.security import make_digest_acl_credential
from pytest_django import Settings

from distlock import LockLost, LockUnavailable, kazoo_client, zk_lease, zk_lock
from distlock.conf import configuration
from distlock.engine.asking import Asking
from distlock.engine.errors import TimeUp
from distlock.engine.protocol import Finding
from distlock.engine.zookeeper.requests import access_list
from distlock.management.subcommands.doctor import diagnose
from tests.commands.tools import run, run_json
from tests.kit.helpers import eventually, raw_client
from tests.kit.tools import PATIENCE
from tests.security.conftest import SASL_PASSWORD, SASL_USERS, Configure, SecureServer

#: The user of each role, which is an alias in DISTLOCK, too.
USERS = dict(zip(("app", "operators", "readers"), SASL_USERS, strict=True))


@pytest.fixture(params=["digest", "sasl"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def aliases(
    secure_server: SecureServer, configure: Configure, settings: Settings, scheme: str
) -> None:
    """An alias for each role, on one namespace; "default" is the app's."""

    def name(user: str) -> str:
        return user if scheme == "sasl" else make_digest_acl_credential(user, SASL_PASSWORD)

    acl = {role: [(scheme, name(user))] for role, user in USERS.items()}
    configure(HOSTS=secure_server.plain, ACL=acl)
    default = settings.DISTLOCK["default"]
    settings.DISTLOCK = {
        alias: {**default, "AUTH": [(scheme, f"{USERS[role]}:{SASL_PASSWORD}")]}
        for alias, role in {"default": "app", **{role: role for role in USERS}}.items()
    }


def secure(client: KazooClient, path: str) -> None:
    """Do as `setAcl -R` of the how-to page does."""
    for name in client.get_children(path):
        secure(client, f"{path}/{name}")
    client.set_acls(path, [*access_list(configuration())])


@pytest.fixture
def secured(aliases: None, stranger: KazooClient, namespace: str) -> None:  # noqa: ARG001 - order
    """A namespace as an administrator makes it."""
    stranger.create(namespace)
    secure(stranger, namespace)


@pytest.fixture
def stranger(secure_server: SecureServer) -> Iterator[KazooClient]:
    with raw_client(secure_server.plain) as client:
        yield client


def found(alias: str) -> dict[str, Finding]:
    return {one.subject: one for one in diagnose(alias, timeout=PATIENCE)}


@pytest.mark.usefixtures("secured")
@pytest.mark.parametrize("role", USERS)
def test_doctor_says_which_permission_a_role_lacks(role: str) -> None:
    with zk_lock("key"):
        findings = found(role)
    assert findings["ACL"].level == "ok"
    assert findings["permissions"].level == ("ok" if role == "app" else "error")
    if role != "app":
        assert "no permission" in findings["permissions"].message
        assert "only app may acquire locks" in findings["permissions"].advice
        assert "the permission CREATE" in findings["permissions"].advice


@pytest.mark.usefixtures("secured")
def test_operators_see_ask_and_break() -> None:
    asked: list[Any] = []
    lock = zk_lock("key", on_revoke=asked.append)
    hold = lock.__enter__()
    (seen,) = run_json("list", "--using", "operators")["locks"]
    assert seen["holders"][0]["readable"]
    assert run("revoke", "key", "--using", "operators")[0] == 0
    eventually(lambda: asked, PATIENCE)
    assert run("break", "key", "-y", "--using", "operators")[0] == 0
    eventually(lambda: hold.lost, PATIENCE)
    with pytest.raises(LockLost):
        lock.__exit__(None, None, None)


@pytest.mark.usefixtures("secured")
def test_readers_see_and_are_told_that_they_may_no_more() -> None:
    with zk_lock("key") as hold:
        (seen,) = run_json("list", "--using", "readers")["locks"]
        assert seen["holders"][0]["readable"]
        for command in (["revoke", "key"], ["break", "key", "-y"]):
            status, _, errors = run(*command, "--using", "readers")
            assert status == 69
            assert "no permission" in errors
            assert "`manage.py distlock doctor` tells what this user may do" in errors
        hold.verify()


@pytest.mark.usefixtures("secured")
@pytest.mark.parametrize("role", ["operators", "readers"])
def test_others_than_the_app_take_no_locks(role: str) -> None:
    with zk_lock("key"):
        pass
    with pytest.raises(LockUnavailable, match="no permission"):
        zk_lock("key", using=role).acquire()


@pytest.mark.usefixtures("secured")
def test_operators_sweep_and_readers_may_not() -> None:
    zk_lease("ended", 0.2, owner="task").acquire()
    out = StringIO()

    def swept() -> bool:
        call_command("distlock", "sweep", using="operators", stdout=out)
        return "Removed 1 expired" in out.getvalue()

    zk_lease("other", 60, owner="task").acquire()
    with pytest.raises(CommandError, match="no permission"):
        call_command("distlock", "sweep", using="readers", stdout=StringIO())
    eventually(swept, PATIENCE)


@pytest.mark.usefixtures("secured")
def test_the_app_cannot_change_the_acl_and_operators_can(namespace: str) -> None:
    acl = kazoo_client("operators").get_acls(namespace)[0]
    with pytest.raises(NoAuthError):
        kazoo_client().set_acls(namespace, acl)
    kazoo_client("operators").set_acls(namespace, acl)


@pytest.mark.usefixtures("aliases")
def test_doctor_finds_nodes_that_are_open(stranger: KazooClient, namespace: str) -> None:
    """Also where only the parents of permits are open: who may change these may delete permits."""
    key, leases = f"{namespace}/key", f"{namespace}/key/leases"
    stranger.create(leases, makepath=True)
    for number, path in ((3, key), (2, namespace), (1, leases)):
        finding = found("default")["ACL"]
        assert finding.level == "warning"
        assert f"{number} of 3 nodes are open to everyone" in finding.message
        if number > 1:  # the node that tells the time is removed without waiting for it
            eventually(lambda: stranger.get_children(namespace) == ["key"], PATIENCE)
        stranger.set_acls(path, [*access_list(configuration())])
    assert found("default")["ACL"].level == "ok"


@pytest.mark.usefixtures("secured")
@pytest.mark.parametrize("silent", [GetACL, GetChildren])
def test_doctor_says_that_nodes_could_not_be_read_in_time(
    silent: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = Asking.outcomes

    def late(self: Asking, *requests: Any) -> list[Any]:
        told = outcomes(self, *requests)
        pairs = zip(requests, told, strict=True)
        return [TimeUp() if isinstance(asked, silent) else one for asked, one in pairs]

    monkeypatch.setattr(Asking, "outcomes", late)
    with zk_lock("key"):
        finding = found("default")["ACL"]
    assert finding.level == "warning"
    assert "could not be read in time" in finding.message
