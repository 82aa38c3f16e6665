from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from pytest_django import Settings

from example_project import settings as example_settings
from example_project.shop.models import Product

STRATEGIES = ["naive", "conditional", "zk", "zk_fenced", "redis"]


@pytest.fixture(autouse=True)
def _shop(settings: Settings) -> None:
    """The site as the example project sets it up, with a payment that takes no time."""
    for name in (
        *("ROOT_URLCONF", "MIDDLEWARE", "TEMPLATES", "STATIC_URL"),
        *("LANGUAGES", "LOCALE_PATHS"),
    ):
        setattr(settings, name, getattr(example_settings, name))
    settings.PAYMENT_SECONDS = 0


@pytest.fixture
def make_product(
    db: None, distlock_settings: Settings, request: pytest.FixtureRequest
) -> Callable[..., Product]:
    """A product in the database; a lock of its strategy is on the real server."""
    # Named above and not asked for here: pytest-django makes the databases of which it reads.
    del db

    def make(strategy: str = "zk_fenced", quantity: int = 3) -> Product:
        if strategy == "redis":
            known = distlock_settings.DISTLOCK
            hosts = request.getfixturevalue("redis").new_database()
            distlock_settings.DISTLOCK = known | {"redis": known["default"] | {"HOSTS": hosts}}
        return Product.objects.create(
            sku=f"lamp-{uuid4().hex[:8]}", name="Lamp", quantity=quantity, strategy=strategy
        )

    return make
