"""Selects and sorts the locks of the admin's list, by the parameters of its address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from unicodedata import normalize

from distlock.inspection.tree import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from distlock.inspection.state import Lock, Snapshot

#: The locks on a page.
PAGE_SIZE: Final = 100
#: The longest text to search for.
TEXT: Final = 200

ORDERS: Final[dict[str, Callable[[Lock], Any]]] = {
    "key": lambda lock: lock.key,
    "age": lambda lock: lock.age or 0.0,
    "waiting": lambda lock: lock.waiting,
    "wait": lambda lock: lock.longest_wait,
}


class Query:
    """The parameters in the page's address. Invalid ones count as absent.

    :ivar hidden: the parameters that the search form keeps
    """

    def __init__(self, said: Mapping[str, str]) -> None:
        order = said.get("o", "")
        self.q = said.get("q", "")[:TEXT].strip()
        self.contended = bool(said.get("contended"))
        self.order = order if order.removeprefix("-") in ORDERS else "-waiting"
        self.hidden = [(name, said[name]) for name in ("using", "contended", "o") if name in said]

    def read(self, using: str, budget: float) -> Snapshot:
        """Return the locks whose keys have the text.

        :param budget: seconds for the reads
        :raises LockUnavailable: the lock server did not answer in time, or refused
        """
        needle = normalize("NFC", self.q).casefold()
        return snapshot(
            using, select=lambda key: needle in key.casefold(), depth=None, budget=budget
        )

    def chosen(self, locks: Iterable[Lock]) -> list[Lock]:
        """Return the locks to show, in their order."""
        found = [lock for lock in locks if lock.waiting or not self.contended]
        found.sort(key=ORDERS["key"])
        found.sort(key=ORDERS[self.order.removeprefix("-")], reverse=self.order.startswith("-"))
        return found

    def columns(self) -> dict[str, dict[str, str]]:
        """Return each sortable column's state, for ``aria-sort``, and the order that it links to.

        The first order of numbers is descending.
        """

        def other(name: str) -> str:
            usual, turned = (name, f"-{name}") if name == "key" else (f"-{name}", name)
            return turned if self.order == usual else usual

        return {
            name: {
                "name": name,
                "order": other(name),
                "sorted": {f"-{name}": "descending", name: "ascending"}.get(self.order, ""),
            }
            for name in ORDERS
        }
