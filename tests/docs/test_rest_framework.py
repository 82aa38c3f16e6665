"""The examples for Django REST framework sell, refuse and commit in the order that they name."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, connections
from django.test import Client
from django.urls import path
from pytest_django import Settings

from distlock import zk_lock
from distlock.checks import check_views
from example_project.shop.models import Product
from tests.docs.names import Names
from tests.docs.running import run_page
from tests.kit.helpers import Urls

PAGE = "docs/how-to/rest-framework.md"


@pytest.fixture
def page() -> str:
    return PAGE


@pytest.fixture(autouse=True)
def _site(page: str, names: Names, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's views behind URLs, on a site with ``ATOMIC_REQUESTS``."""
    run_page(page, names)
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    settings.MIDDLEWARE = ["distlock.middleware.DistlockMiddleware"]
    settings.REST_FRAMEWORK = {
        **names["REST_FRAMEWORK"],
        "DEFAULT_AUTHENTICATION_CLASSES": [],
        "UNAUTHENTICATED_USER": None,
    }
    settings.ROOT_URLCONF = Urls(
        path("buy/<sku>/", names["buy"]),
        path("stock/<sku>/", names["Stock"].as_view()),
        path("reserve/<sku>/", names["reserve"]),
        path("set/<pk>/", names["StockViewSet"].as_view({"post": "update"})),
    )


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each COMMIT of a product: whether the lamp's lock was held."""
    held: list[bool] = []
    unsaved: list[Product] = []
    wrapper: Any = type(connections["default"])
    save, commit = Product.save, wrapper._commit

    def save_and_note(product: Product, *args: Any, **options: Any) -> None:
        assert connection.in_atomic_block
        save(product, *args, **options)
        unsaved.append(product)

    def commit_and_note(database: Any) -> None:
        commit(database)
        while unsaved:
            unsaved.pop()
            held.append(zk_lock("stock:lamp").held)

    monkeypatch.setattr(Product, "save", save_and_note)
    monkeypatch.setattr(wrapper, "_commit", commit_and_note)
    return held


def post(view: str) -> Any:
    return Client().post(f"/{view}/lamp/", {"quantity": 4}, "application/json")


WRITES = pytest.mark.parametrize(
    ("view", "left"), [("buy", 9), ("stock", 11), ("reserve", 9), ("set", 4)]
)


@WRITES
def test_a_locked_example_commits_inside_its_lock(
    view: str, left: int, committed: list[bool]
) -> None:
    assert post(view).json() == {"left": left}
    assert committed == [True]
    assert Product.objects.get(sku="lamp").quantity == left


def test_the_check_has_no_objections() -> None:
    assert check_views() == []
