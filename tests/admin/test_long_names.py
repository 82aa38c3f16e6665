"""Names of 60,000 characters, which anybody may have written, are clipped wherever they are shown.

One of them made a page of 2.7 MB.
"""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command

from tests.inspection.tools import cleared, found, stand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.test import Client

    from tests.kit.tools import Tree

LONG = 60_000
#: Of which letter each kind of name is made; no other text has so many of them in a row.
KINDS = {"a lock": "Q", "a participant": "Z", "a node beside": "X", "data": "J"}
_RUN = re.compile(r"([QZXJ])\1{600}")


@pytest.fixture(params=KINDS)
def _long(request: pytest.FixtureRequest, tree: Tree) -> Iterator[None]:
    long = KINDS[request.param] * LONG
    path = f"{tree.namespace}/key"
    with cleared(tree):
        if request.param == "a lock":
            for node in ("lock-", "lock-", "__READ__"):
                tree.client.create(
                    f"{tree.namespace}/{long}{node}/{node}",
                    sequence=True,
                    ephemeral=True,
                    makepath=True,
                )
        elif request.param == "a participant":
            for _ in range(3):
                tree.client.create(
                    f"{path}/{long}-lock-", sequence=True, ephemeral=True, makepath=True
                )
        elif request.param == "a node beside":
            stand(tree, "key")
            tree.client.create(f"{path}/{long}")
        else:
            names = ("host", "worker", "owner", "label")
            data = {"v": 1, **dict.fromkeys(names, long[: LONG // 40])}
            stand(tree, "key", data=json.dumps(data).encode())
        yield


def assert_clipped(text: str) -> None:
    assert text
    shown = _RUN.search(text)
    assert shown is None, f"{len(text)} characters: …{text[shown.start() - 200 : shown.start()]}"


pages = pytest.mark.parametrize("page", ["list", "search", "detail"])


@pytest.mark.usefixtures("_long")
@pages
def test_a_page_of_the_admin_is_short(operator: Client, page: str) -> None:
    address = {
        "list": "",
        "search": "?o=waiting",
        "detail": "default%3Akey/change/",
    }[page]
    answer = operator.get(f"/admin/distlock/lock/{address}", follow=True)
    assert answer.status_code == 200
    assert_clipped(answer.content.decode())


@pytest.mark.usefixtures("_long")
@pytest.mark.parametrize(
    "command",
    [
        ["list"],
        ["list", "--json"],
        ["list", "--deadlocks"],
        ["show", "key"],
        ["show", "key", "--json"],
        ["doctor"],
        ["break", "key", "--yes", "--all"],
    ],
    ids=" ".join,
)
def test_what_a_command_prints_is_short(command: list[str]) -> None:
    out, err = StringIO(), StringIO()
    why = ""
    try:
        call_command("distlock", *command, stdout=out, stderr=err)
    except CommandError as error:
        why = str(error)
    assert_clipped(f"{out.getvalue()}{err.getvalue()}{why} ")


@pytest.mark.usefixtures("_long")
def test_what_python_code_prints_is_short() -> None:
    def texts() -> Iterator[Any]:
        for lock in found().locks:
            yield lock
            yield from lock.contenders

    assert_clipped(" ".join(map(str, texts())))
