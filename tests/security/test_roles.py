"""The three roles of the setting ACL, on a real server, with digest and with SASL.

The app takes locks; operators look, ask to leave, break and set the ACL; readers look.
"""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl_credential

from distlock import LockLost, LockUnavailable, zk_lease, zk_lock
from distlock.management.diagnosis import diagnose
from distlock.session.registry import session_for
from tests.commands.tools import run, run_json
from tests.kit.helpers import eventually, raw_client
from tests.kit.tools import PATIENCE
from tests.security.conftest import SASL_PASSWORD, SASL_USERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kazoo.client import KazooClient
    from pytest_django import Settings

    from distlock.management.finding import Finding
    from tests.security.conftest import Configure, SecureServer

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


@pytest.fixture
def secured(aliases: None, namespace: str) -> None:  # noqa: ARG001 - the order of fixtures
    """A namespace that the operators have made with `set-acl`."""
    done = run_json("set-acl", "--using", "operators")
    assert (done["created"], done["namespace"]) == (True, namespace)


@pytest.fixture
def stranger(secure_server: SecureServer) -> Iterator[KazooClient]:
    with raw_client(secure_server.plain) as client:
        yield client


def found(alias: str) -> dict[str, Finding]:
    return {one.subject: one for one in diagnose(alias, timeout=PATIENCE)}


@pytest.mark.usefixtures("secured")
@pytest.mark.parametrize("role", USERS)
def test_doctor_names_the_role_and_finds_nothing_wrong(role: str) -> None:
    with zk_lock("key"):
        findings = found(role)
    acl = {name: one for name, one in findings.items() if name in ("ACL", "role", "permissions")}
    assert {one.level for one in acl.values()} == {"ok"}
    assert acl["role"].message.startswith(f"{role}: ")
    assert "3 nodes have the setting's ACL" in acl["ACL"].message
    assert ("permissions" in acl) == (role == "app")


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
def test_a_stranger_sees_and_breaks_nothing(stranger: KazooClient) -> None:
    with zk_lock("key") as hold:
        for misdeed in (stranger.get, stranger.delete, lambda path: stranger.set(path, b"")):
            with pytest.raises(NoAuthError):
                misdeed(hold.path)


@pytest.mark.usefixtures("secured")
def test_the_app_cannot_change_the_acl_and_operators_can() -> None:
    root = session_for().root
    for alias, refused in (("default", True), ("operators", False)):
        session = session_for(alias)
        future = session.ask(session.write_acl, root)
        if refused:
            with pytest.raises(LockUnavailable, match="no permission"):
                session.answer(future, PATIENCE, key=root)
        else:
            session.answer(future, PATIENCE, key=root)


@pytest.mark.usefixtures("aliases")
def test_set_acl_shows_and_then_changes_what_is_open(stranger: KazooClient, namespace: str) -> None:
    nodes = [namespace, f"{namespace}/key", f"{namespace}/key/leases"]
    stranger.create(nodes[-1], makepath=True)
    findings = found("operators")
    assert findings["ACL"].level == "warning"
    assert "3 of 3 nodes have another ACL" in findings["ACL"].message
    assert findings["role"].level == "warning"  # open: it may do all

    status, out, _ = run("set-acl", "--dry-run", "--using", "operators")
    assert status == 0
    assert out.splitlines() == [
        *(f"Would change {path}" for path in nodes),
        "3 of 3 nodes had another ACL.",
    ]
    assert all(stranger.get_acls(path)[0] == OPEN_ACL_UNSAFE for path in nodes)

    assert run_json("set-acl", "--using", "operators")["changed"] == nodes
    for path in nodes:
        with pytest.raises(NoAuthError):
            stranger.get(path)
    assert run_json("set-acl", "--using", "operators")["changed"] == []
    assert found("operators")["ACL"].level == "ok"


@pytest.mark.usefixtures("aliases")
def test_a_dry_run_creates_no_namespace(stranger: KazooClient, namespace: str) -> None:
    status, out, _ = run("set-acl", "--dry-run", "--using", "operators")
    assert status == 0
    assert f"Would create {namespace}" in out
    assert stranger.exists(namespace) is None


@pytest.mark.usefixtures("secured")
def test_readers_cannot_set_the_acl(secure_server: SecureServer, scheme: str) -> None:
    credentials = f"{USERS['app']}:{SASL_PASSWORD}"
    sasl = {"mechanism": "DIGEST-MD5", "username": USERS["app"], "password": SASL_PASSWORD}
    options: dict[str, Any] = (
        {"sasl_options": sasl} if scheme == "sasl" else {"auth_data": [("digest", credentials)]}
    )
    root = session_for().root
    with raw_client(secure_server.plain, **options) as app:
        app.create(f"{root}/open", acl=OPEN_ACL_UNSAFE)
        app.create(f"{root}/foreign", acl=[*app.get_acls(root)[0][2:]])
    status, out, errors = run("set-acl", "--using", "readers")
    assert status == 1
    assert f"Changed {root}/open" in out
    assert f"{root}/foreign" in errors
