"""Every Python example of the documentation runs, in the order of its page, on a real ZooKeeper."""

from __future__ import annotations

import ast
import threading
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.auth.models import AnonymousUser
from django.test import RequestFactory
from django.utils.module_loading import import_string
from pytest_django import Settings

from distlock.checks import check_settings
from distlock.testing import hold
from distlock_chaos.server import ZooKeeper
from example_project.shop.models import Product
from tests.docs.blocks import PAGES, python_blocks
from tests.docs.names import Names
from tests.docs.running import run_page
from tests.fork.tools import heard, program
from tests.kit.tools import PATIENCE

README = "README.md"
VIEWS = "docs/how-to/views-and-transactions.md"
WITH_PYTHON = [page for page in PAGES if python_blocks(page)]


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_a_block_needs_no_import_and_no_variable_of_another(page: str) -> None:
    """A reader may paste one block alone, beside models, views and settings of their own."""
    of_page: set[str] = set()
    missing = []
    for block in python_blocks(page):
        tree = ast.parse(block.text)
        nodes = list(ast.walk(tree))
        names = [node for node in nodes if isinstance(node, ast.Name) and not node.id.isupper()]
        imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        made = {name.asname or name.name for node in imports for name in node.names}
        variables = {name.id for name in names if isinstance(name.ctx, ast.Store)}
        used = {name.id for name in names} - made - variables
        missing += [f"{page}:{block.line}: {name}" for name in used & of_page]
        assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
        of_page |= made | {ast.unparse(target) for node in assigned for target in node.targets}
    assert not missing


def request() -> Any:
    made = RequestFactory().post("/buy/lamp")
    made.user = AnonymousUser()
    return made


def stock() -> int:
    return Product.objects.get(sku="lamp").quantity


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_examples_of_a_page_run(page: str, names: Names, settings: Settings) -> None:
    before = set(threading.enumerate())  # a browser's, too, if a test of this process had one
    run_page(page, names)
    for thread in set(threading.enumerate()) - before:
        if not thread.daemon:
            thread.join(PATIENCE)
    for name in [*names.get("INSTALLED_APPS", []), *names.get("MIDDLEWARE", [])]:
        if str(name).startswith("distlock."):
            assert import_string(name)
    if "DISTLOCK" in names:
        settings.DISTLOCK = names["DISTLOCK"]
        with patch.dict(settings.DATABASES, names.get("DATABASES", {})):
            assert not check_settings()


@pytest.mark.parametrize("page", [README, VIEWS])
def test_the_view_of_a_page_sells_one(page: str, names: Names) -> None:
    run_page(page, names)
    before = stock()
    assert names["buy"](request(), sku="lamp").status_code == 200
    assert stock() == before - 1


@pytest.mark.parametrize("page", [VIEWS])
def test_the_other_functions_of_a_page_do_their_work(page: str, names: Names) -> None:
    run_page(page, names)
    before = stock()
    names["restock"]("lamp", 3)
    assert stock() == before + 3
    names["take_back"]("lamp")
    assert names["Buy"].as_view()(request(), sku="lamp").status_code == 200
    assert stock() == before + 3


@pytest.mark.parametrize("page", [VIEWS])
def test_whom_the_busy_lock_turns_away_is_sent_to_the_queue(page: str, names: Names) -> None:
    run_page(page, names)
    with hold("stock:lamp"):
        answer = names["buy_or_queue"](request(), sku="lamp")
    assert (answer.status_code, answer["Location"]) == (302, "/queue/")


# --- the queue of the page about kazoo -----------------------------------------------------------


PAGE = "docs/how-to/kazoo.md"

CONSUMES = """
from distlock import kazoo_client
from tests.docs.blocks import python_blocks

def print_label(order):
    tell(order)
    hear()

names = {"kazoo_client": kazoo_client, "print_label": print_label}
python_blocks(sys.argv[3])[-1].run(names)
"""


@pytest.mark.deep
@pytest.mark.parametrize("page", [PAGE])
def test_the_item_of_a_killed_consumer_comes_again(
    page: str, names: Names, zookeeper: ZooKeeper, namespace: str
) -> None:
    *_, produce, consume = python_blocks(page)
    produce.run(names)
    with program(CONSUMES, zookeeper.hosts, namespace, page, session_timeout=2) as process:
        assert heard(process) == "order-1"
        names["order_label"]("order-3")
        process.kill()
        process.wait(PATIENCE)
    consume.run(names)
    names["print_labels"](patience=10)  # until the session of the killed one must have ended
    printed = [call.args[0] for call in names["print_label"].call_args_list]
    assert sorted(printed) == ["order-1", "order-2", "order-3"]
    assert not names["kazoo_client"]().get_children("/shop/labels/entries")
