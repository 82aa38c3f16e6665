"""A double of `Session` over a tree in memory, whose answers come one at a time, as a test likes.

It shows to the waiting line what no real server does on demand: a counter about to wrap, a list
that still has a node of the session before, a reply lost at a chosen moment.
"""

from __future__ import annotations

from collections import Counter, deque
from copy import copy
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from distlock.contenders.batch import BatchMember
from distlock.contenders.contender import QueuedContender
from distlock.contenders.grant import Grant
from distlock.engine.deadline import SessionDeadline, now
from distlock.engine.errors import ConnectionLost, NoNode, NotConnected, NotEmpty, SessionOver
from distlock.exceptions import LockUnavailable
from distlock.keys.limits import MAX_INT, signed
from distlock.keys.znodes import REVOKE
from distlock.queue.events import Changed
from distlock.queue.policies import FAIR, MUTEX, UNFAIR
from distlock.session.guaranteed_delete import GuaranteedDelete

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.engine.reply import Done
    from distlock.session.session import Session

LINE = "/distlock/stock:42"
AN_HOUR = 3600.0
#: The least that a node of distlock says.
OURS = b'{"v":1}'


class Tree:
    """The nodes under `LINE`, and the answers that are under way."""

    def __init__(self, sequence: int = 0, *, sticks: bool = False) -> None:
        #: name → stat, in the order of creation
        self.nodes: dict[str, Any] = {}
        self.sequence = sequence
        #: Whether the counter sticks at its last number; servers before ZOOKEEPER-3249 let it wrap.
        self.sticks = sticks
        #: What the parent node has for data.
        self.data = b""
        #: The czxid of the line's own node, 0 while there is none.
        self.begun = 0
        #: How many of the next containers are reaped before anything can be created in them.
        self.reaped_at_once = 0
        self.under_way: deque[Callable[[], None]] = deque()
        self.watches: dict[str, list[tuple[FakeSession, Callable[[bool], None]]]] = {}
        self.sent: Counter[str] = Counter()
        self._zxid = 0
        self.begin()

    def begin(self) -> None:
        """Create the line's own node."""
        self._zxid += 1
        self.begun = self._zxid

    @property
    def exists(self) -> bool:
        """Whether there is the line's own node."""
        return self.begun > 0

    def remove_line(self) -> None:
        """Delete all nodes and their parent; the next line counts from 0 again."""
        for name in list(self.nodes):
            self.remove(name)
        self.begun = self.sequence = 0
        self._fire(LINE, deleted=True)

    def answer_one(self) -> None:
        self.under_way.popleft()()

    def answer(self) -> None:
        """Answer all requests, also those that the answers cause."""
        while self.under_way:
            self.answer_one()

    def add(self, name: str, session_id: int = 0, data: bytes = OURS) -> Any:
        self._zxid += 1
        self.nodes[name] = SimpleNamespace(
            czxid=self._zxid, ephemeralOwner=session_id, version=0, data=data
        )
        return self.nodes[name]

    def next_number(self) -> str:
        number = signed(self.sequence)
        if not (self.sticks and self.sequence == MAX_INT):
            self.sequence += 1
        return f"{number:010d}"

    def remove(self, name: str) -> None:
        """Delete a node, whoever wants that, and tell who watches it."""
        if self.nodes.pop(name, None) is not None:
            self.touch(name, deleted=True)

    def revoke(self, name: str) -> None:
        """Write the request to leave into a node, and tell who watches it."""
        self.nodes[name].data = REVOKE
        self.nodes[name].version += 1
        self.touch(name)

    def touch(self, name: str, *, deleted: bool = False) -> None:
        self._fire(f"{LINE}/{name}", deleted=deleted)

    def _fire(self, path: str, *, deleted: bool) -> None:
        for _, changed in self.watches.pop(path, []):
            self.under_way.append(partial(changed, deleted))

    def expire(self, session: FakeSession, *, new_id: int, nodes_vanish: bool = True) -> None:
        """End a session; its nodes may still be shown to the next one (CURATOR-604)."""
        old_id, session.id = session.id, new_id
        session.deadline.end()
        session.deadline.renew(now(), AN_HOUR)
        session.reconnect()
        for name in [name for name, stat in self.nodes.items() if stat.ephemeralOwner == old_id]:
            if nodes_vanish:
                self.remove(name)


class Counting(Grant):
    """A contender that counts how often it was settled, and notes if that was a grant on a ghost,
    or of what was lost already.

    :param revocable: it also counts how often it was asked to leave
    """

    error: Exception | None
    ahead: int | None
    head: str

    def __init__(self, session: FakeSession, *, revocable: bool = False, **options: Any) -> None:
        self.settled = 0
        self.asked = 0
        self.granted_on_a_ghost = False
        self.granted_in_vain = False
        self.trying = bool(options.get("try_only"))
        super().__init__(
            cast("Session", session),
            LINE,  # type: ignore[call-arg]
            key="stock:42",
            data=b"",
            settled=self._count,
            on_revoke=self._asked_to_leave if revocable else None,
            **options,
        )

    def _count(self) -> None:
        self.settled += 1
        self.granted_on_a_ghost |= self.granted and not self.standing
        self.granted_in_vain |= self.granted and self.lost

    def _asked_to_leave(self) -> None:
        self.asked += 1


class CountingContender(Counting, QueuedContender):
    """The same of one who has a node of its own."""

    def be_woken_for_nothing(self) -> None:
        """Hear of a change of the one ahead, if that is watched."""
        if self.machine._watched in self._watchers:
            self.hear(Changed(self.machine._watched, deleted=False))


class CountingBatchMember(Counting, BatchMember):
    """The same of one who has turns with others of its process."""


CONTENDERS: dict[str, Callable[..., Any]] = {
    "mutex": partial(CountingContender, policy=MUTEX),
    "batch": partial(CountingBatchMember, handoff=3),
    "fair": partial(CountingContender, policy=FAIR),
    "unfair": partial(CountingContender, policy=UNFAIR),
}


class FakeHeartbeat:
    """Notes for whom the deadline would be kept."""

    def __init__(self) -> None:
        self.attended = InOrder()
        self.attend = self.attended.add
        self.dismiss = self.attended.discard

    def hurry(self) -> None:
        """Nobody is waiting for it."""


class InOrder(dict[Any, None]):
    """A set in the order of addition: alike in each run, as hypothesis expects."""

    def add(self, one: Any) -> None:
        self[one] = None

    def discard(self, one: Any) -> None:
        self.pop(one, None)


class FakeSession:
    """What a contender uses of a session."""

    def __init__(self, tree: Tree, number: int = 1) -> None:
        self.tree = tree
        self.id = number
        self.far = number % 2 == 0
        self.heartbeat = FakeHeartbeat()
        self.deadline = SessionDeadline()
        self.deadline.renew(now(), AN_HOUR)
        self.connection = 1
        self.connected = True
        self.contenders = InOrder()
        self.newest: dict[str, Any] = {}
        self.batches: dict[str, Any] = {}
        self.local_nodes: dict[Any, Any] = {}
        self.lines: dict[str, Any] = {}
        self.post = self.soon
        self.deletes = GuaranteedDelete(cast("Session", self), cast("Any", None))
        self.deletes.delete = self.delete  # type: ignore[method-assign]
        self.make = SimpleNamespace(
            listing=lambda path: partial(self.children, path),
            reading=lambda path: partial(self.read, path),
        )
        self.conf = SimpleNamespace(retry_after=1.0, alias="default")
        self._wanted = InOrder()
        #: request → the error that the next one of these gets instead of being carried out
        self.fails: dict[str, BaseException] = {}
        #: Whether the next create is carried out and its reply lost.
        self.lose_reply_of_create = False

    def join(self, kind: str = "mutex", **options: Any) -> Any:
        """A contender that has sent its first requests."""
        contender = CONTENDERS[kind](self, **options)
        contender.join()
        return contender

    def reconnect(self) -> None:
        """Lose the connection, with all answers and watches, and find another one."""
        for path, watching in list(self.tree.watches.items()):
            for _, changed in [pair for pair in watching if pair[0] is self]:
                self.unwatch(path, changed)
        self._wanted.clear()
        self.local_nodes.clear()
        self.lines.clear()
        self.connection += 2
        for contender in tuple(self.contenders):
            contender.connection_changed()

    def when_connected(self, step: Callable[[], None]) -> None:
        step()

    def soon(self, step: Callable[[], None]) -> None:
        self.tree.under_way.append(step)

    def prove(self, then: Callable[[bool], None]) -> None:
        def proved() -> None:
            self.renew()
            then(True)

        self._request("sync", proved, lambda *_: then(False))

    def renew(self) -> None:
        """A heartbeat was acknowledged."""
        self.deadline.renew(now(), AN_HOUR)

    def unavailable(self, key: str, error: BaseException | None = None) -> LockUnavailable:
        return LockUnavailable(repr(error), key=key)

    def create_ephemeral(
        self,
        prefix: str,
        data: bytes,
        done: Done,
        orphan: Callable[[Any], None],
        *,
        sequential: bool = False,
        also: tuple[Callable[[Done], None], Done] | None = None,
    ) -> None:
        self._request("create", partial(self._create, prefix, done), done)
        if also is not None:
            ask, looked = also
            ask(looked)

    def create_containers(self, path: str, done: Done) -> None:
        def make() -> None:
            if self.tree.reaped_at_once:
                self.tree.reaped_at_once -= 1
            elif not self.tree.exists:
                self.tree.begin()
            done(path, None)

        self._request("container", make, done)

    def children(self, path: str, done: Done, *, sync: bool = False) -> None:
        def listing() -> None:
            if self.tree.exists:
                done(list(self.tree.nodes), None)
            else:
                done(None, NoNode())

        self._request("children", listing, done)

    def read(self, path: str, done: Done) -> None:
        self._request("read", partial(self._read, path, done), done)

    def remove(self, path: str, version: int, done: Done) -> None:
        def remove() -> None:
            if not self.tree.exists:
                done(None, NoNode())
            elif self.tree.nodes:
                done(None, NotEmpty())
            else:
                self.tree.remove_line()
                done(True, None)

        self._request("remove", remove, done)

    def watch(self, path: str, changed: Callable[[bool], None], done: Done) -> None:
        self._wanted.add((path, changed))

        def watching() -> None:
            there = path == LINE or path.rpartition("/")[2] in self.tree.nodes
            if there and (path, changed) in self._wanted:
                self.tree.watches.setdefault(path, []).append((self, changed))
            self._read(path, done)

        self._request("watch", watching, done)

    def unwatch(
        self, path: str, changed: Callable[[bool], None], *, children: bool = False
    ) -> None:
        self._wanted.discard((path, changed))
        watchers = self.tree.watches.get(path, [])
        watchers[:] = [pair for pair in watchers if pair != (self, changed)]
        if not watchers:
            self.tree.watches.pop(path, None)

    def delete(self, path: str, session_id: int, gone: Callable[[], None] | None = None) -> None:
        def delete() -> None:
            if session_id == self.id:  # or else it goes with its session
                self.tree.remove(path.rpartition("/")[2])
            if gone is not None:
                gone()

        self._request("delete", delete, _ignore)

    def _request(self, what: str, answer: Callable[[], None], done: Done) -> None:
        self.tree.sent[what] += 1
        if what in self.fails:
            error = self.fails.pop(what)
            if isinstance(error, ConnectionLost | SessionOver):
                answer = partial(self._lose, done)
            else:
                answer = partial(done, None, error)
        self.tree.under_way.append(answer)

    def _lose(self, done: Done) -> None:
        """Lose the connection before an answer."""
        self.reconnect()
        done(None, NotConnected())

    def _create(self, prefix: str, done: Done) -> None:
        lost, self.lose_reply_of_create = self.lose_reply_of_create, False
        if not self.tree.exists:
            done(None, NoNode())
        else:
            name = prefix.rpartition("/")[2] + self.tree.next_number()
            stat = self.tree.add(name, self.id)
            if lost:
                self._lose(done)
            else:
                done((f"{LINE}/{name}", stat), None)

    def _read(self, path: str, done: Done) -> None:
        stat = self.tree.nodes.get(path.rpartition("/")[2])
        if path == LINE and self.tree.exists:
            stat = SimpleNamespace(czxid=self.tree.begun, version=0, aversion=0)
            done((self.tree.data, stat), None)
        elif stat is None:
            done(None, NoNode())
        else:
            done((stat.data, copy(stat)), None)


def _ignore(value: Any, error: BaseException | None) -> None:
    """A delete is repeated until it is done."""
