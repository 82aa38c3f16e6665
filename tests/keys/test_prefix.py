"""``KEY_PREFIX``: each tenant has locks of its own, whatever their kind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command

from distlock import (
    LockBusy,
    LockKeyError,
    zk_leader,
    zk_lease,
    zk_limited,
    zk_lock,
    zk_locked,
    zk_multilock,
    zk_rwlock,
    zk_semaphore,
    zk_semaphore_mutex,
)
from distlock.signals import lock_acquired
from distlock.testing import assert_locked, hold
from tests.testproject.tenants import PATH, tenant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kit.losses import SetOptions
    from tests.kit.tools import MakeOwner

pytestmark = [pytest.mark.engines("zookeeper", "redis"), pytest.mark.usefixtures("tree")]

LOCKS: dict[str, Any] = {
    "mutex": zk_lock,
    "read": lambda key, **how: zk_rwlock(key, **how).read,
    "write": lambda key, **how: zk_rwlock(key, **how).write,
    "semaphore": lambda key, **how: zk_semaphore(key, 1, **how),
    "semaphore mutex": zk_semaphore_mutex,
    "multilock": zk_multilock,
    "lease": lambda key, **how: zk_lease(key, 60, **how),
    "leader": zk_leader,
}


@pytest.fixture(autouse=True)
def _tenants(set_options: SetOptions) -> Iterator[None]:
    for using in ("default", "other"):
        set_options(using, KEY_PREFIX=PATH)
    yield
    tenant.set("public")


@pytest.mark.parametrize("kind", LOCKS)
def test_a_lock_of_any_kind_excludes_its_own_tenant_only(
    kind: str, make_owner: MakeOwner, capsys: pytest.CaptureFixture[str]
) -> None:
    make, rival = LOCKS[kind], make_owner()

    def attempt(name: str) -> str:
        tenant.set(name)
        try:
            with make("stock", using="other", timeout=0):
                return "granted"
        except LockBusy:
            return "busy"

    tenant.set("t1")
    with make("stock"):
        assert rival.now(lambda: attempt("t2")) == "granted"
        if kind != "read":
            assert rival.now(lambda: attempt("t1")) == "busy"
        call_command("distlock", "list", "t1:stock")
        assert "t1:stock" in capsys.readouterr().out


def test_a_call_has_the_tenant_of_its_moment_and_counts_under_its_template() -> None:
    labels: list[tuple[str, str]] = []

    def note(*, key: str, template: str, **_: Any) -> None:
        labels.append((template, key))

    @zk_locked("stock:<sku>")
    @zk_limited("shop:<sku>", 1)
    def buy(sku: str) -> None: ...

    @zk_locked("stock:<sku>", mode="read")
    async def abuy(sku: str) -> None: ...

    lock_acquired.connect(note)
    for name in ("t1", "t2"):
        tenant.set(name)
        buy("7")
        asyncio.run(abuy("8"))
    assert labels == [
        (template, f"{name}:{key}")
        for name in ("t1", "t2")
        for template, key in [
            ("stock:<sku>", "stock:7"),
            ("shop:<sku>", "shop:7"),
            ("stock:<sku>", "stock:8"),
        ]
    ]


@pytest.mark.parametrize("kind", [kind for kind in LOCKS if kind != "leader"])
def test_an_object_of_another_tenant_is_refused(kind: str) -> None:
    lock = LOCKS[kind]("stock")  # as when its module is imported
    with lock:
        pass
    tenant.set("t1")
    with pytest.raises(LockKeyError, match=r"'public:stock'.*'t1'.*make it in the function"), lock:
        pass


@pytest.mark.parametrize("value", ["", "t1:x", "a/b", None, 5])
def test_a_tenant_without_a_name_is_refused(value: Any) -> None:
    tenant.set(value)
    with pytest.raises(LockKeyError, match=r"name_of_tenant\(\).*must return a text"):
        zk_lock("stock")


def test_a_text_is_a_prefix_and_operators_name_the_whole_key(
    set_options: SetOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    set_options(KEY_PREFIX="shop")
    with zk_lock("stock:7") as mine:
        assert mine.key == "shop:stock:7"
        call_command("distlock", "break", "shop:stock:7", "-y")
        assert "Broken" in capsys.readouterr().out


def test_the_tools_for_tests_name_keys_as_the_code_does() -> None:
    with hold("stock:7"):
        assert_locked("stock:7")
        assert not zk_lock("stock:7").acquire(timeout=0)
