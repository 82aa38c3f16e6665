"""The page in the language that the browser asks for."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from pytest_django import Settings

from distlock import zk_lock
from tests.admin.tools import LIST, address, markup, of, said
from tests.inspection.tools import the_lock
from tests.kit.tools import MakeOwner

pytestmark = pytest.mark.usefixtures("tree")

CHINESE = {"accept-language": "zh-hans,zh;q=0.9,en;q=0.5"}


@pytest.fixture(autouse=True)
def _site_of_many_languages(settings: Settings, _site: None) -> None:
    middleware = list(settings.MIDDLEWARE)
    after = middleware.index("django.contrib.sessions.middleware.SessionMiddleware") + 1
    middleware.insert(after, "django.middleware.locale.LocaleMiddleware")
    settings.MIDDLEWARE = middleware


def english(text: str) -> list[str]:
    """Words of English sentences. Keys, paths and names of programs are no such."""
    return re.findall(r"\b(?:the|of|is|are|not|who|this|for|and)\b", text, re.IGNORECASE)


def test_list_detail_and_confirmation_are_in_chinese(
    operator: Client, make_owner: MakeOwner
) -> None:
    lock, owner, waiter = zk_lock("stock:42", timeout=30), make_owner(), make_owner()
    owner.now(lock.acquire)
    waiting = waiter.submit(lock.acquire)
    pages = [
        operator.get(LIST, headers=CHINESE),
        operator.get(address("stock:42"), headers=CHINESE),
        operator.get(of(the_lock("stock:42").holders[0], "stock:42", "break"), headers=CHINESE),
        operator.get(of(the_lock("stock:42").holders[0], "stock:42", "revoke"), headers=CHINESE),
    ]
    owner.now(lock.release)
    waiting.result(30)
    waiter.now(lock.release)
    for page, words in zip(
        pages,
        (
            ("持有者", "等待数", "最长等待"),
            ("请求释放", "强制解除", "互斥锁"),
            ("您将强制解除以下持有者的锁", "操作后果", "将立即成为持有者"),
            ("您将请求以下参与者释放锁", "请求释放"),
        ),
        strict=True,
    ):
        assert 'lang="zh-hans"' in markup(page)
        for word in words:
            assert word in said(page)
        assert english(said(page).partition("首页")[2]) == []
