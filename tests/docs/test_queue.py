"""The queue of the page about kazoo: a killed consumer's item comes again, and nothing is lost."""

from __future__ import annotations

import pytest

from distlock_chaos.server import ZooKeeper
from tests.docs.blocks import python_blocks
from tests.docs.names import Names
from tests.fork.tools import heard, program
from tests.kit.tools import PATIENCE

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
