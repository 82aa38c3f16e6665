"""Selects and sorts the locks of the admin's list, by the parameters of its address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from unicodedata import normalize

from distlock.inspection.state import ORDERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from distlock.inspection.state import Lock

#: The locks on a page.
PAGE_SIZE: Final = 100
#: The longest text to search for.
TEXT: Final = 200


class Query:
    """The parameters in the page's address. Invalid ones count as absent.

    :ivar hidden: the parameters that the search form keeps
    """

    def __init__(self, said: Mapping[str, str]) -> None:
        order = said.get("o", "")
        self.q = said.get("q", "")[:TEXT].strip()
        self.contended = bool(said.get("contended"))
        self.order = order if order in ORDERS else "waiting"
        self.hidden = [(name, said[name]) for name in ("using", "contended", "o") if name in said]

    def has(self, key: str) -> bool:
        return normalize("NFC", self.q).casefold() in key.casefold()

    def chosen(self, locks: Iterable[Lock]) -> list[Lock]:
        """Return the locks to show, in their order."""
        found = [lock for lock in locks if lock.waiting or not self.contended]
        return sorted(sorted(found, key=ORDERS["key"]), key=ORDERS[self.order])
