"""Builds the admin's list of locks: its query, its rows, and its links."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, get_args
from unicodedata import normalize
from urllib.parse import parse_qsl, urlencode

from distlock.inspection.state import Kind
from distlock.inspection.tree import snapshot
from distlock.keys.znodes import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from distlock.inspection.state import Lock, Snapshot

#: The locks on a page, and the keys read for it: their order is known only when all have been read.
PAGE_SIZE: Final = 100
KEYS: Final = 10_000
#: The number of prefixes to choose from, and the longest text to search for.
PREFIXES: Final = 20
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
    prefix: str = ""
    kind: str = ""
    contended: str = ""
    o: str = _FIRST
    p: int = 1
    after: str = ""

    @classmethod
    def of(cls, said: Mapping[str, str], using: str) -> Query:
        """Read the parameters of a request."""
        text = {name: said.get(name, "") for name in ("q", "prefix", "kind", "after")}
        order, page = said.get("o", ""), said.get("p", "")
        return cls(
            using=using,
            q=text["q"][:TEXT].strip(),
            prefix=text["prefix"][:TEXT],
            kind=text["kind"] if text["kind"] in get_args(Kind) else "",
            contended="1" if said.get("contended") else "",
            o=order if order.removeprefix("-") in ORDERS else _FIRST,
            p=int(page) if page.isdecimal() and page.isascii() and len(page) < 6 else 1,
            after=text["after"][: 2 * TEXT],
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
        kept = parse_qsl(self.address(q="", after="").removeprefix("?"))
        return [(name, value) for name, value in kept if name != "q"]

    @property
    def everything(self) -> str:
        """The address of all locks."""
        return self.address(q="", prefix="", kind="", contended="", after="")

    @property
    def any_queue(self) -> str:
        """The address of locks with or without waiters."""
        return self.address(contended="")

    @property
    def only_contended(self) -> str:
        """The address of locks with waiters."""
        return self.address(contended="1")

    @property
    def any_kind(self) -> str:
        """The address of locks of all kinds."""
        return self.address(kind="")

    @property
    def any_prefix(self) -> str:
        """The address of locks with any prefix."""
        return self.address(prefix="", after="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of the values of a filter."""

    text: str
    address: str
    chosen: bool
    count: int | None = None


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
        self._needle = normalize("NFC", query.q).casefold()
        self._prefixes: Counter[str] = Counter()
        self.seen: Snapshot = snapshot(
            query.using,
            select=self._selected,
            after=query.after,
            page_size=KEYS,
            depth=None,
            budget=budget,
        )
        self.found = [lock for lock in self.seen.locks if self._matches(lock)]
        self.found.sort(key=ORDERS["key"])
        descending = query.o.startswith("-")
        self.found.sort(key=ORDERS[query.o.removeprefix("-")], reverse=descending)

    def _selected(self, key: str) -> bool:
        if self._needle and self._needle not in key.casefold():
            return False
        prefix, colon, _ = key.partition(":")
        if colon:
            self._prefixes[prefix] += 1
        return not self.query.prefix or bool(colon and prefix == self.query.prefix)

    def _matches(self, lock: Lock) -> bool:
        return self.query.kind in ("", lock.kind) and bool(lock.waiting or not self.query.contended)

    # --- the page -------------------------------------------------------------------------------

    @property
    def all_of_it(self) -> Snapshot | None:
        """All locks of the namespace, None if only some were read."""
        query = self.query
        whole = not (query.q or query.prefix or query.after or self.seen.cut)
        return self.seen if whole else None

    @cached_property
    def pages(self) -> int:
        """The number of pages."""
        return max(-(-len(self.found) // PAGE_SIZE), 1)

    @cached_property
    def page(self) -> int:
        """The number of this page, or of the last one if there are fewer by now."""
        return min(max(self.query.p, 1), self.pages)

    @cached_property
    def locks(self) -> list[Lock]:
        """The locks on this page."""
        return self.found[(self.page - 1) * PAGE_SIZE : self.page * PAGE_SIZE]

    def rows(self, address: Callable[[Lock], str]) -> list[Row]:
        """Return the rows of this page."""
        longest = max((lock.waiting for lock in self.found), default=0) or 1
        return [
            Row(lock=lock, address=address(lock), depth=-(-100 * lock.waiting // longest))
            for lock in self.locks
        ]

    @property
    def before(self) -> str:
        """The address of the previous page, empty on the first one."""
        return self.query.address(p=self.page - 1) if self.page > 1 else ""

    @property
    def next(self) -> str:
        """The address of the next page, empty on the last one."""
        return self.query.address(p=self.page + 1) if self.page < self.pages else ""

    @property
    def rest(self) -> str:
        """The address of the keys that were not read, empty if all were."""
        return self.query.address(after=self.seen.next) if self.seen.cut else ""

    @property
    def from_the_start(self) -> str:
        """The address of the first keys, empty if these were read."""
        return self.query.address(after="") if self.query.after else ""

    # --- counts ---------------------------------------------------------------------------------

    @cached_property
    def holding(self) -> int:
        """The number of holders."""
        return sum(lock.holding for lock in self.found)

    @cached_property
    def waiting(self) -> int:
        """The number of waiters."""
        return sum(lock.waiting for lock in self.found)

    # --- choices --------------------------------------------------------------------------------

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

    def prefixes(self) -> list[Choice]:
        """Return the prefixes with most keys, idle ones too, and the chosen one."""
        most = [prefix for prefix, _ in self._prefixes.most_common(PREFIXES)]
        if self.query.prefix and self.query.prefix not in most:
            most.append(self.query.prefix)
        return [
            Choice(
                text=prefix,
                address=self.query.address(prefix=prefix, after=""),
                chosen=prefix == self.query.prefix,
                count=self._prefixes[prefix],
            )
            for prefix in sorted(most)
        ]

    def kinds(self) -> list[Choice]:
        """Return the kinds of the locks that were read, and the chosen one."""
        there = Counter(lock.kind for lock in self.seen.locks)
        return [
            Choice(
                text=kind,
                address=self.query.address(kind=kind),
                chosen=kind == self.query.kind,
                count=there[kind],
            )
            for kind in get_args(Kind)
            if there[kind] or kind == self.query.kind
        ]
