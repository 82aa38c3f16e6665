"""Whatever a node says, the admin's pages and every command can show it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.utils import timezone

from distlock.keys.templates import znode_name
from tests.commands.tools import run
from tests.inspection.tools import cleared
from tests.kit.tools import Tree

from .tools import LIST, address

HUGE: Final = 10**30
#: Values that no node of ours has.
VALUES: Final[list[Any]] = [
    *(HUGE, -HUGE, 10**4000, 2**31, 2**63, -1, 0, 1e308, -1e308, float("nan"), float("inf")),
    *(253402300799, 253402300800, -62135596800, 1.5, True, None, "", "x" * 9000, "a\r\nb\x1b[2J"),
    *("\ud800", "\u202e", [], [[]], {}, {"a": 1}, "9" * 5000),
]
#: What makes a node one of ours, and what it may say besides.
NEEDED: Final = ["v", "owner", "ttl", "token", "mark", "limit"]
MORE: Final = ["host", "pid", "worker", "label", "since", "attempt"]
USUAL: Final = {
    "v": 1,
    "owner": "o",
    "host": "h",
    "pid": 1,
    "worker": "w",
    "label": "l",
    "since": 1,
    "attempt": "a",
    "ttl": 600,
    "mark": "0" * 32,
}
#: Where nodes of each kind are, below that of the key.
KINDS: Final = ["lock-", "__READ__", "__WRIT__", "locks/lock-", "leases/lease-"]


def hostile_data() -> Iterator[bytes]:
    """What anybody may have written into a node."""
    for value in VALUES:
        yield json.dumps({**USUAL, **dict.fromkeys(MORE, value)}).encode()
    for field in NEEDED:
        for value in VALUES:
            yield json.dumps({**USUAL, field: value}).encode()
    yield from (b"", b"[]", b"null", b"\xff\xfe", b"{" * 9000, b"[" * 9000, b'{"since": 1e999}')


class Hostile:
    """Fills a namespace with nodes of every kind that say such things."""

    def __init__(self, tree: Tree) -> None:
        self.keys = [znode_name(kind) for kind in KINDS]
        self._tree = tree
        data = list(hostile_data())
        for kind, key in zip(KINDS, self.keys, strict=True):
            self._make(f"{key}/{kind}", data, sequence=True)
        self._make("@tickets/key/task-", data, sequence=True)
        self._make("@tickets/nameless/task", data[:1])
        leases = [f"@leases/lease{number}" for number in range(len(data))]
        for path, one in zip(leases, data, strict=True):
            self._make(path, [one])
            self._make(f"{path}/{'0' * 32}", [b""])
        self.keys += leases[: len(VALUES)]
        for number, one in enumerate(data):  # what a semaphore's limit says
            self._make(f"semaphore{number}/leases", [one])
            self._make(f"semaphore{number}/leases/lease-", [b""], sequence=True)

    def _make(self, path: str, data: list[bytes], *, sequence: bool = False) -> None:
        whole = f"{self._tree.namespace}/{path}"
        self._tree.client.ensure_path(whole.rpartition("/")[0])
        asked = [
            self._tree.client.create_async(whole, one, sequence=sequence, makepath=False)
            for one in data
        ]
        for one in asked:
            one.get()


@pytest.mark.deep
@pytest.mark.django_db
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12"])
def test_every_page_and_command_shows_them(tree: Tree, operator: Client, zone: str) -> None:
    with cleared(tree), timezone.override(zone):
        hostile = Hostile(tree)
        pages = [f"{LIST}?{urlencode({'p': page})}" for page in range(1, 6)]
        for page in [*pages, f"{LIST}?_fragment=1", *map(address, hostile.keys)]:
            assert operator.get(page).status_code == 200, page
        for command in (["list"], ["list", "-o", "json"], ["doctor"], ["sweep"]):
            status, _, errors = run(*command)
            assert status in (0, 1, 3), (command, errors)  # 3 of `sweep`: some are no lease's
        for key in (*KINDS, "key", "nameless"):
            for command in (["show"], ["show", "-o", "json"], ["revoke", "--all"]):
                status, _, errors = run(*command, key)
                assert status in (0, 1), (command, key, errors)
