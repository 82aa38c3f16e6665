"""Runs the examples of a page, one after the other, as one module."""

from __future__ import annotations

import inspect
from typing import Any

from django.db import connection

from distlock import FencedModel
from tests.docs.blocks import python_blocks
from tests.docs.names import Names


def run_page(page: str, names: Names) -> None:
    """Run or compile each Python block of `page`, with `names` and what the blocks before made."""
    for block in python_blocks(page):
        if block.reason:
            block.compile()
        else:
            block.run(names)
            make_tables(names)


def models(names: Names) -> list[Any]:
    """Return the models that the examples have defined."""
    return [
        value
        for value in names.values()
        if inspect.isclass(value)
        and issubclass(value, FencedModel)
        and value.__module__ == names["__name__"]
    ]


def make_tables(names: Names) -> None:
    """Make the tables of models that an example has just defined, each with a lamp."""
    for model in models(names):
        if model._meta.db_table not in connection.introspection.table_names():
            with connection.schema_editor() as editor:
                editor.create_model(model)
            model(sku="lamp", quantity=10).save()


def drop_tables(names: Names) -> None:
    for model in models(names):
        with connection.schema_editor() as editor:
            editor.delete_model(model)
