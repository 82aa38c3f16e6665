"""A filled table becomes a fenced one: the example shop's own migration, there and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import IntegrityError, connection
from django.db.migrations import AlterField
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState

from distlock import StaleToken
from example_project.shop.models import Product


def migrate(name: str | None) -> Any:
    """Bring the shop to one of its migrations, and return the models of that time."""
    executor = MigrationExecutor(connection)
    state = executor.migrate([("shop", name)])
    return state.apps


@pytest.fixture
def old_product(no_tables: None) -> Iterator[int]:  # noqa: ARG001 - the database, first
    """The key of a row that is older than the column."""
    old = migrate("0001_initial").get_model("shop", "Product")
    yield old.objects.create(sku="lamp", name="Lamp", quantity=3, strategy="zk").pk
    migrate(None)


def test_existing_rows_have_no_token_and_can_be_fenced(old_product: int) -> None:
    migrate("0002_fencing")
    product = Product.objects.only("quantity", "fence").get(pk=old_product)  # without later columns
    assert (product.quantity, product.fence) == (3, 0)
    product.quantity = 2
    product.save(fence=5)
    with pytest.raises(StaleToken):
        product.save(fence=4)


@pytest.mark.usefixtures("old_product")
def test_a_statement_that_does_not_know_the_column_may_insert_a_row() -> None:
    migrate("0004_fence_db_default")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO shop_product (sku, name, quantity, strategy)"
            " VALUES ('table', 'Table', 5, 'zk')"
        )
    assert dict(Product.objects.values_list("sku", "fence")) == {"lamp": 0, "table": 0}


def test_a_project_whose_column_has_no_default_gets_a_migration_that_adds_it() -> None:
    """What ``makemigrations`` finds for a migration that an earlier release has written."""
    loader = MigrationLoader(None)
    before = loader.project_state(("shop", "0003_shipped"))
    now = ProjectState.from_apps(apps)
    changes = MigrationAutodetector(before, now).changes(loader.graph)
    (operation,) = [
        one for one in changes["shop"][0].operations if getattr(one, "name", "") == "fence"
    ]
    assert isinstance(operation, AlterField)
    assert operation.model_name == "product"
    assert operation.field.deconstruct()[3]["db_default"] == 0


def test_the_column_is_not_null(old_product: int) -> None:
    migrate("0002_fencing")
    with pytest.raises(IntegrityError), connection.cursor() as cursor:
        cursor.execute("UPDATE shop_product SET fence = NULL WHERE id = %s", [old_product])
