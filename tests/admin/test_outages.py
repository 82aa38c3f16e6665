"""When ZooKeeper does not answer, or refuses, the page says so, in time, and is a page."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from kazoo.security import make_acl
from pytest_django import Settings

from distlock.admin import model_admin
from distlock.session.registry import close_sessions
from distlock_chaos.ports import free_ports
from distlock_chaos.proxy import TcpProxy
from tests.admin.tools import LIST, address, markup, said
from tests.inspection.tools import ONLY_NOBODY, cleared, stand
from tests.kit.tools import OVERRUN, Tree, await_connection, within

PAGES = [LIST, f"{LIST}?_fragment=1", "detail", "confirmation"]


def get(operator: Client, page: str) -> Any:
    """The page, within its time."""
    addresses = {
        "detail": address("key"),
        "confirmation": address("key", "break", node="_c_x-lock-0000000000", token=1),
    }
    with within(model_admin.BUDGET + 2 * OVERRUN):
        return operator.get(addresses.get(page, page))


def assert_unavailable(page: Any) -> None:
    assert page.status_code == 200
    assert 'id="distlock-unavailable"' in markup(page)
    assert 'role="alert"' in markup(page)
    assert "manage.py distlock doctor" in said(page)


@pytest.mark.parametrize("page", PAGES, ids=["list", "fragment", "detail", "confirmation"])
def test_a_server_that_is_not_there(
    distlock_settings: Settings, operator: Client, page: str
) -> None:
    (port,) = free_ports(1)
    options = {**distlock_settings.DISTLOCK["default"], "HOSTS": f"127.0.0.1:{port}"}
    distlock_settings.DISTLOCK = {"default": options}
    assert_unavailable(get(operator, page))
    close_sessions()


@pytest.mark.parametrize("page", PAGES, ids=["list", "fragment", "detail", "confirmation"])
def test_a_server_that_accepts_and_never_answers(
    broken_link: TcpProxy, operator: Client, page: str
) -> None:
    await_connection()
    broken_link.black_hole()
    assert_unavailable(get(operator, page))


def test_a_namespace_that_may_not_be_listed(tree: Tree, operator: Client) -> None:
    with cleared(tree):
        tree.client.create(tree.namespace)
        tree.client.set_acls(tree.namespace, ONLY_NOBODY)
        page = operator.get(LIST)
        assert_unavailable(page)
        assert "no permission" in said(page)


def test_a_node_that_may_not_be_deleted_is_not_said_to_be_broken(
    tree: Tree, operator: Client
) -> None:
    with cleared(tree):
        path = stand(tree, "key")
        token = tree.client.exists(path).czxid
        tree.client.set_acls(
            tree.path("key"), [*ONLY_NOBODY, make_acl("world", "anyone", read=True)]
        )
        link = address("key", "break", node=path.rpartition("/")[2], token=token)
        answer = operator.post(link)
        assert_unavailable(answer)
        assert "no permission" in said(answer)
        assert tree.client.exists(path)


@pytest.mark.parametrize("page", [LIST, "detail"], ids=["list", "detail"])
def test_settings_that_are_wrong(settings: Settings, operator: Client, page: str) -> None:
    settings.DISTLOCK = {"default": {"HOST": "127.0.0.1:2181"}}
    answer = get(operator, page)
    assert_unavailable(answer)
    assert "The settings of these locks are wrong." in said(answer)
    assert "Did you mean" in said(answer)
