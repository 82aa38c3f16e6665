"""Builds the admin's list of locks: its query, its rows, and its links."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from unicodedata import normalize
from urllib.parse import parse_qsl, urlencode

from django.core.paginator import Page, Paginator

from distlock.inspection.tree import snapshot
from distlock.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
_FIRST: Final = "-waiting"


@dataclass(frozen=True, kw_only=True)
class Query:
    """The parameters in the page's address. Invalid ones count as absent."""

    using: str = "default"
    q: str = ""
    contended: str = ""
    o: str = _FIRST
    p: int = 1

    @classmethod
    def of(cls, said: Mapping[str, str], using: str) -> Query:
        """Read the parameters of a request."""
        order, page = said.get("o", ""), said.get("p", "")
        return cls(
            using=using,
            q=said.get("q", "")[:TEXT].strip(),
            contended="1" if said.get("contended") else "",
            o=order if order.removeprefix("-") in ORDERS else _FIRST,
            p=int(page) if page.isdecimal() and page.isascii() and len(page) < 6 else 1,
        )

    def address(self, **changes: Any) -> str:
        """Return the address of the same list with changes, on the first page by default."""
        changed = replace(self, **{"p": 1, **changes})
        said = {
            field.name: value
            for field in fields(changed)
            if (value := getattr(changed, field.name)) != field.default
        }
        return f"?{urlencode(said)}"

    @property
    def hidden(self) -> list[tuple[str, str]]:
        """The parameters that the search form keeps."""
        kept = parse_qsl(self.address(q="").removeprefix("?"))
        return [(name, value) for name, value in kept if name != "q"]

    @property
    def everything(self) -> str:
        """The address of all locks."""
        return self.address(q="", contended="")

    @property
    def any_queue(self) -> str:
        """The address of locks with or without waiters."""
        return self.address(contended="")

    @property
    def only_contended(self) -> str:
        """The address of locks with waiters."""
        return self.address(contended="1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A sortable column of the list.

    :ivar sorted: ``ascending``, ``descending`` or empty, as ``aria-sort`` has it
    """

    name: str
    address: str
    sorted: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One lock of the list.

    :ivar address: the address of its page, empty if it can have none
    :ivar depth: the number of waiters, in percent of the longest queue
    """

    lock: Lock
    address: str
    depth: int

    @property
    def id(self) -> str:
        """A text that identifies the row."""
        return f"lock-{printable(self.lock.name)}-{self.lock.kind}"

    @property
    def others(self) -> int:
        """The number of holders beside the first."""
        return self.lock.holding - 1


class LockList:
    """The locks that a query finds, in its order, with the alternatives to choose from.

    :param budget: seconds for the reads
    :raises LockUnavailable: the lock server did not answer in time, or refused
    """

    def __init__(self, query: Query, budget: float) -> None:
        self.query = query
        needle = normalize("NFC", query.q).casefold()
        self.seen: Snapshot = snapshot(
            query.using,
            select=lambda key: needle in key.casefold(),
            depth=None,
            budget=budget,
        )
        self.found = [lock for lock in self.seen.locks if lock.waiting or not query.contended]
        self.found.sort(key=ORDERS["key"])
        descending = query.o.startswith("-")
        self.found.sort(key=ORDERS[query.o.removeprefix("-")], reverse=descending)

    # --- the page -------------------------------------------------------------------------------

    @property
    def all_of_it(self) -> Snapshot | None:
        """All locks of the namespace, None if only some were read."""
        query = self.query
        whole = not (query.q or self.seen.cut)
        return self.seen if whole else None

    @cached_property
    def page(self) -> Page[Lock]:
        """This page, or the last one if there are fewer by now."""
        return Paginator(self.found, PAGE_SIZE).get_page(self.query.p)

    def rows(self, address: Callable[[Lock], str]) -> list[Row]:
        """Return the rows of this page."""
        longest = max((lock.waiting for lock in self.found), default=0) or 1
        return [
            Row(lock=lock, address=address(lock), depth=-(-100 * lock.waiting // longest))
            for lock in self.page
        ]

    @property
    def before(self) -> str:
        """The address of the previous page, empty on the first one."""
        return self.query.address(p=self.page.number - 1) if self.page.has_previous() else ""

    @property
    def next(self) -> str:
        """The address of the next page, empty on the last one."""
        return self.query.address(p=self.page.number + 1) if self.page.has_next() else ""

    # --- counts ---------------------------------------------------------------------------------

    @cached_property
    def holding(self) -> int:
        """The number of holders."""
        return sum(lock.holding for lock in self.found)

    @cached_property
    def waiting(self) -> int:
        """The number of waiters."""
        return sum(lock.waiting for lock in self.found)

    def columns(self) -> dict[str, Column]:
        """Return the sortable columns, each with its first order: descending for numbers."""
        now = self.query.o
        return {
            name: Column(
                name=name,
                address=self.query.address(o=self._other_order(name)),
                sorted={f"-{name}": "descending", name: "ascending"}.get(now, ""),
            )
            for name in ORDERS
        }

    def _other_order(self, name: str) -> str:
        usual, other = (name, f"-{name}") if name == "key" else (f"-{name}", name)
        return other if self.query.o == usual else usual
