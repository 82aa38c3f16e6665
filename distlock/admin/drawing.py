"""Draws the wait-for graph as an SVG: a box for each owner and an arrow for each wait."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import deque
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final

from distlock.keys.znodes import printable

from .layout import NODE_HEIGHT, NODE_WIDTH, ROOM, lay_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from distlock.inspection.state import Contender
    from distlock.inspection.wait_graph import Cycle, Link

    from .layout import Pair, Point

#: The most owners in a drawing.
MAX_NODES: Final = 40
#: The letters that fit into a box, and on an arrow.
NODE_LETTERS: Final = 25
EDGE_LETTERS: Final = 19
#: The space around everything.
MARGIN: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The box of an owner. Places and sizes are pixels of the unscaled drawing.

    :ivar owner: its id
    :ivar label: its work, as far as known; cut to fit
    :ivar place: its process, cut to fit; empty if the label has it
    :ivar title: all known facts
    :ivar stuck: whether it is part of a deadlock
    :ivar x: the middle
    :ivar y: the middle
    """

    owner: str
    label: str
    place: str
    title: str
    stuck: bool
    x: int
    y: int
    width: int = int(NODE_WIDTH)
    height: int = int(NODE_HEIGHT)

    @property
    def left(self) -> int:
        """The left side of the box."""
        return self.x - self.width // 2

    @property
    def top(self) -> int:
        """The upper side of the box."""
        return self.y - self.height // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The arrow from a waiter to a holder.

    :ivar locks: the keys it waits for; usually one
    :ivar label: the same, cut to fit; empty if an earlier arrow of the waiter has it
    :ivar stuck: whether it is part of a deadlock
    :ivar d: the attribute of the ``<path>``
    :ivar x: the place of the label
    :ivar y: the place of the label
    :ivar anchor: the label's ``text-anchor``
    """

    waiter: Node
    holder: Node
    locks: tuple[str, ...]
    label: str
    stuck: bool
    d: str
    x: int
    y: int
    anchor: str

    @property
    def title(self) -> str:
        """All its locks."""
        return ", ".join(self.locks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A drawing for ``distlock/waitgraph.html``; false if nobody waits.

    :ivar box: the ``viewBox``
    :ivar nodes: first come first
    :ivar hidden: the number of owners that are left out
    """

    box: str
    width: int
    height: int
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    hidden: int

    def __bool__(self) -> bool:
        return bool(self.nodes) or self.hidden > 0

    @property
    def stuck(self) -> bool:
        """Whether it shows a deadlock."""
        return any(edge.stuck for edge in self.edges)


def draw(
    links: Iterable[Link], cycles: Iterable[Cycle] = (), *, lock: str | None = None
) -> Drawing:
    """Return the drawing of the waits: the same for the same links in any order.

    Of more than 40 owners it shows those of the deadlocks, and then those next to them, or next to
    `lock`.

    :param links: the result of `wait_graph.links`
    :param cycles: the result of `wait_graph.cycles` or `wait_graph.deadlocks`
    :param lock: the `name` of a lock, to draw only the waits connected with it
    """
    cycles = list(cycles)
    links = [*links, *(link for cycle in cycles for link in cycle.links)]
    locks: dict[Pair, set[str]] = {}
    near: set[str] = set()
    for link in links:
        pair = link.waiter.owner, link.holder.owner
        locks.setdefault(pair, set()).add(str(link.lock))
        if lock in (None, link.lock.name):
            near.update(pair)
    neighbours = _neighbours(locks)
    linked = _reach(sorted(near), neighbours)
    rings = [ring for ring in _rings(cycles) if ring[0] in linked]
    stuck = {pair for ring in rings for pair in pairwise([*ring, ring[0]])}
    who = _who(links)
    chosen = _choose(rings, [] if lock is None else sorted(near), linked, neighbours)
    # Those of a queue come in its order.
    owners = sorted(chosen, key=lambda owner: (who[owner].participant.token, owner))
    rank = {owner: place for place, owner in enumerate(owners)}
    pairs = sorted(
        (pair for pair in locks if chosen.issuperset(pair)),
        key=lambda pair: (rank[pair[0]], rank[pair[1]]),
    )
    places = lay_out(owners, [ring for ring in rings if chosen.issuperset(ring)], pairs)
    entangled = {owner for owner, _ in stuck}
    nodes = {owner: _node(who[owner], places[owner], stuck=owner in entangled) for owner in owners}
    edges = _edges(nodes, {pair: locks[pair] for pair in pairs}, stuck)
    return _frame(tuple(nodes.values()), tuple(edges), hidden=len(linked) - len(chosen))


def _who(links: Iterable[Link]) -> dict[str, Contender]:
    """Return each owner's node, the one with which it waits: that has its current work."""
    who: dict[str, Contender] = {}
    for link in links:
        for one in (link.waiter, link.holder):
            said = who.setdefault(one.owner, one)
            if said is not one:
                who[one.owner] = min(said, one, key=lambda of: (of.holds, of.participant.path))
    return who


# --- which owners --------------------------------------------------------------------------------


def _rings(cycles: Iterable[Cycle]) -> list[list[str]]:
    """Return the owners of each cycle, from the least one on, so that drawings stay the same."""
    owners = [[link.waiter.owner for link in cycle.links] for cycle in cycles]
    starts = [ring.index(min(ring)) for ring in owners]
    rings: list[list[str]] = []
    for ring in sorted(
        ring[start:] + ring[:start] for ring, start in zip(owners, starts, strict=True)
    ):
        if all(set(ring).isdisjoint(other) for other in rings):
            rings.append(ring)
    return rings


def _neighbours(pairs: Iterable[Pair]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one, other in sorted(pairs):
        found.setdefault(one, []).append(other)
        found.setdefault(other, []).append(one)
    return found


def _reach(start: Iterable[str], neighbours: Mapping[str, Iterable[str]]) -> dict[str, None]:
    """Return all owners connected with the first ones, the nearest first."""
    seen = dict.fromkeys(start)
    pending = deque(seen)
    while pending:
        for owner in neighbours[pending.popleft()]:
            if owner not in seen:
                seen[owner] = None
                pending.append(owner)
    return seen


def _choose(
    rings: Iterable[Sequence[str]],
    near: Iterable[str],
    linked: Iterable[str],
    neighbours: Mapping[str, Iterable[str]],
) -> set[str]:
    """Return the owners to draw."""
    chosen: list[str] = []
    for ring in rings:
        if len(chosen) + len(ring) <= MAX_NODES:
            chosen += ring
    order = _reach([*chosen, *near], neighbours)
    for owner in linked:
        if len(order) >= MAX_NODES:
            break
        if owner not in order:
            order |= _reach([owner], neighbours)
    return set(islice(order, MAX_NODES))


# --- how they look -------------------------------------------------------------------------------


def _node(who: Contender, at: Point, *, stuck: bool) -> Node:
    told = who.participant
    place = f"{told.host}:{told.pid} {told.worker}".strip() if told.host else who.owner
    return Node(
        owner=who.owner,
        label=_cut(told.label or place, NODE_LETTERS),
        place=_cut(place, NODE_LETTERS) if told.label else "",
        title=str(who),
        stuck=stuck,
        x=round(at[0]),
        y=round(at[1]),
    )


def _edges(
    nodes: Mapping[str, Node], locks: Mapping[Pair, set[str]], stuck: set[Pair]
) -> Iterator[Edge]:
    told = set()
    for pair, keys in locks.items():
        waiter, holder = nodes[pair[0]], nodes[pair[1]]
        if waiter is holder:
            d, at, anchor = _loop(waiter)
        elif pair in stuck or holder.left - waiter.left < waiter.width:
            # Two owners that wait for each other have two arrows.
            bulge = ROOM if pair[::-1] in locks else ROOM / 3
            d, at, anchor = _bow(waiter, holder, bulge)
        else:
            d, at, anchor = _wave(waiter, holder, _between(waiter, holder, nodes.values()))
        text = ", ".join(sorted(keys))
        yield Edge(
            waiter=waiter,
            holder=holder,
            locks=tuple(sorted(keys)),
            label="" if (at, text) in told else _cut(text, EDGE_LETTERS),
            stuck=pair in stuck,
            d=d,
            x=round(at[0]),
            y=round(at[1]),
            anchor=anchor,
        )
        told.add((at, text))


def _between(waiter: Node, holder: Node, nodes: Iterable[Node]) -> list[Node]:
    """Return the boxes that a line from left to right could touch on its way."""
    high, low = sorted((waiter.y, holder.y))
    return [
        node
        for node in nodes
        if waiter.left + waiter.width < node.left + node.width
        and node.left < holder.left
        and high < node.top + node.height
        and node.top < low
    ]


def _wave(waiter: Node, holder: Node, between: Sequence[Node]) -> tuple[str, Point, str]:
    """Return a line from left to right, below the boxes in between, and its label's place."""
    start, end, middle = waiter.left + waiter.width, holder.left, (waiter.x + holder.x) // 2
    if between:
        low = max(node.top + node.height for node in between) + round(ROOM)
        bottom = holder.top + holder.height
        d = f"M{start} {waiter.y}C{start + 60} {low} {holder.x} {low} {holder.x} {bottom}"
    else:
        d = f"M{start} {waiter.y}C{middle} {waiter.y} {middle} {holder.y} {end} {holder.y}"
    return d, (start + 6, waiter.y - 5), "start"


def _bow(waiter: Node, holder: Node, bulge: float) -> tuple[str, Point, str]:
    """Return a line that bulges to the left of its way: out of a circle that goes clockwise."""
    across, down = holder.x - waiter.x, holder.y - waiter.y
    length = math.hypot(across, down) or 1
    middle = (waiter.x + holder.x) / 2, (waiter.y + holder.y) / 2
    out = down / length * bulge, -across / length * bulge
    control = middle[0] + out[0], middle[1] + out[1]
    (x1, y1), (x2, y2) = _border(waiter, control), _border(holder, control)
    d = f"M{x1} {y1}Q{control[0]:.0f} {control[1]:.0f} {x2} {y2}"
    return d, (middle[0] + out[0] / 2, middle[1] + out[1] / 2 + 4), "middle"


def _loop(node: Node) -> tuple[str, Point, str]:
    """Return a line from a node to itself, above it."""
    left, right, high = node.x - 24, node.x + 24, node.top - 36
    d = f"M{left} {node.top}C{left} {high} {right} {high} {right} {node.top}"
    return d, (node.x, node.top - 32), "middle"


def _border(node: Node, toward: Point) -> tuple[int, int]:
    """Return the point where a line from the middle of a node leaves its box."""
    across, down = toward[0] - node.x, toward[1] - node.y
    part = min(
        node.width / 2 / abs(across) if across else 1.0,
        node.height / 2 / abs(down) if down else 1.0,
        1.0,
    )
    return round(node.x + across * part), round(node.y + down * part)


def _frame(nodes: tuple[Node, ...], edges: tuple[Edge, ...], *, hidden: int) -> Drawing:
    # The points that bend a line are part of it here, which leaves room for labels.
    ways = [int(number) for edge in edges for number in re.findall(r"-?\d+", edge.d)]
    across = [side for node in nodes for side in (node.left, node.left + node.width)] + ways[::2]
    down = [side for node in nodes for side in (node.top, node.top + node.height)] + ways[1::2]
    left, top = min(across, default=0) - MARGIN, min(down, default=0) - MARGIN
    width = max(across, default=0) + MARGIN - left
    height = max(down, default=0) + MARGIN - top
    return Drawing(
        box=f"{left} {top} {width} {height}",
        width=width,
        height=height,
        nodes=nodes,
        edges=edges,
        hidden=hidden,
    )


def _cut(text: str, letters: int) -> str:
    """Return a text that fits: without its middle, since keys and places differ at their ends."""
    text = printable(text)
    if _letters(text) <= letters:
        return text
    head, tail = text[: letters // 2], text[-(letters // 2) :]
    while _letters(head) > letters // 2:
        head = head[:-1]
    while _letters(tail) > letters // 2:
        tail = tail[1:]
    return f"{head}\N{HORIZONTAL ELLIPSIS}{tail}"


def _letters(text: str) -> int:
    """Return the width of a text: Chinese, Japanese and Korean letters are wide."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
