"""Selects and sorts the locks of the admin's list, by the parameters of its address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from unicodedata import normalize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from distlock.inspection.state import Lock

#: The locks on a page.
PAGE_SIZE: Final = 100
#: The longest text to search for.
TEXT: Final = 200

#: Each sortable column's number; the largest comes first. Else the locks are sorted by their keys.
ORDERS: Final[dict[str, Callable[[Lock], Any]]] = {
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
        self.order = order if order in {"key", *ORDERS} else "waiting"
        self.hidden = [(name, said[name]) for name in ("using", "contended", "o") if name in said]

    def has(self, key: str) -> bool:
        """Return whether a key has the text."""
        return normalize("NFC", self.q).casefold() in key.casefold()

    def chosen(self, locks: Iterable[Lock]) -> list[Lock]:
        """Return the locks to show, in their order."""
        found = [lock for lock in locks if lock.waiting or not self.contended]
        found.sort(key=lambda lock: lock.key)
        if self.order in ORDERS:
            found.sort(key=ORDERS[self.order], reverse=True)
        return found
