"""Every Python example of the documentation runs, in the order of its page, on a real ZooKeeper."""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from distlock import FencedModel
from tests.docs.blocks import PAGES, blocks
from tests.docs.names import Names, given
from tests.helpers import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

WITH_PYTHON = [page for page in PAGES if any(b.language == "python" for b in blocks(page))]


@pytest.fixture
def names(page: str, project: None) -> Iterator[Names]:  # noqa: ARG001 - made before the names
    """The names of a page's examples. A leader among them is told to stop once it leads."""
    names = given(page)
    ended = threading.Event()

    def stop_the_leader() -> None:
        eventually(lambda: ended.is_set() or getattr(names.get("leader"), "is_leader", False), 60)
        if not ended.is_set():
            names["leader"].stop()

    helper = threading.Thread(target=stop_the_leader)
    helper.start()
    yield names
    ended.set()
    helper.join()


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


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_examples_of_a_page_run(page: str, names: Names) -> None:
    try:
        for block in blocks(page):
            if block.language != "python":
                continue
            if block.reason:
                block.compile()
            else:
                block.run(names)
                make_tables(names)
    finally:
        drop_tables(names)
