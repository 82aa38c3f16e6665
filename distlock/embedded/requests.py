"""Carries out the requests of one connection on the tree, and writes the replies.

Source: ZooKeeper's ``PrepRequestProcessor``, ``FinalRequestProcessor`` and ``ZooDefs.OpCode``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from distlock.jute import (
    AUTH,
    CLOSE,
    STAT,
    Record,
    pack_acl,
    pack_buffer,
    pack_integer,
    pack_step,
    pack_text,
    pack_texts,
)

from .acl import ADMIN, CREATE, DELETE, READ, WRITE, identify, permits, resolve, without_digests
from .errors import Code, Refused
from .paths import parent, validate
from .tree import SYSTEM_NODES
from .watches import Event, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .acl import Acl, Entry, Who
    from .node import Stat
    from .tree import MemoryTree

    Handler = Callable[..., bytes]
    Step = tuple[int, Handler, list[Any]]

# The types of requests that may be steps of a transaction.
_ERROR: Final = -1
_CREATE, _DELETE, _SET_DATA, _CHECK, _CREATE2 = 1, 2, 5, 13, 15
_CREATE_CONTAINER, _CREATE_TTL = 19, 21

# The flags of a create.
_EPHEMERAL: Final = (1, 3)
_SEQUENTIAL: Final = (2, 3, 6)
_CONTAINER: Final = 4
_TTL: Final = (5, 6)
_LONGEST_TTL: Final = 0xFF_FFFF_FFFF

#: The number of all kinds of watches.
_ANY: Final = 3
#: The kinds of watches that stay, by their numbers in a request for one.
_MODES: Final = (Kind.PERSISTENT, Kind.RECURSIVE)

#: Ends the reply to a transaction.
_END: Final = pack_step(_ERROR, -1, end=True)


class Requests:
    """The requests of one session over one connection.

    :param address: the client's IP address
    :param event: takes the watch events that the client has missed; see `Listener`
    """

    def __init__(
        self, tree: MemoryTree, session_id: int, address: str, event: Callable[[Event, str], None]
    ) -> None:
        self._tree = tree
        self._session_id = session_id
        self._event = event
        #: The client itself, as access lists name it.
        self._ids: dict[Who, None] = {("ip", address): None}

    def perform(self, kind: int, record: Record) -> bytes:
        """Carry out one request and return the body of its reply.

        :raises Refused: the request is refused
        :raises Malformed: its fields are not those of the protocol
        """
        handler, arguments = _read(kind, record)
        return handler(self, *arguments)

    def nothing(self) -> bytes:
        """Reply to a request that only shows that its client is alive."""
        return b""

    def authenticate(self, _: int, scheme: str, credentials: bytes | None) -> bytes:
        """Let the client be one more of those whom access lists name."""
        if scheme != "ip":  # that is known
            self._ids[identify(scheme, credentials or b"")] = None
        return b""

    # --- writing ---------------------------------------------------------------------------------

    def create(
        self,
        path: str,
        data: bytes | None,
        acl: list[Entry],
        flags: int,
        ttl: int = 0,
    ) -> bytes:
        """Make a node; the reply is its path."""
        sequential = flags in _SEQUENTIAL
        if not 0 <= flags <= max(_TTL) or (flags in _TTL) != (0 < ttl <= _LONGEST_TTL):
            raise Refused(Code.BAD_ARGUMENTS)
        validate(f"{path}1" if sequential else path)
        kept = resolve(acl, self._ids)
        self._tree.permit(parent(path), CREATE, self._ids)
        made = self._tree.create(
            path,
            data,
            owner=self._session_id if flags in _EPHEMERAL else 0,
            sequential=sequential,
            container=flags == _CONTAINER,
            ttl=ttl,
            acl=kept,
        )
        return pack_text(made)

    def create2(self, path: str, *fields: Any) -> bytes:
        """Make a node; the reply is its path and stat."""
        made = self.create(path, *fields)
        return made + self._stat(Record(made).text())

    def delete(self, path: str, version: int) -> bytes:
        """Remove a node."""
        if path in SYSTEM_NODES:
            raise Refused(Code.BAD_ARGUMENTS)
        self._tree.permit(parent(path), DELETE, self._ids)
        self._tree.delete(path, version)
        return b""

    def set_data(self, path: str, data: bytes | None, version: int) -> bytes:
        """Replace a node's data."""
        self._tree.permit(path, WRITE, self._ids)
        return STAT.pack(*self._tree.write(path, data, version))

    def set_acl(self, path: str, acl: list[Entry], version: int) -> bytes:
        """Replace a node's access list."""
        kept = resolve(acl, self._ids)
        self._tree.permit(path, ADMIN, self._ids)
        return STAT.pack(*self._tree.set_acl(path, kept, version))

    def check(self, path: str, version: int) -> bytes:
        """Refuse the rest of a transaction if a node has another version."""
        self._tree.permit(path, READ, self._ids)
        self._tree.check(path, version)
        return b""

    def multi(self, steps: Sequence[Step]) -> bytes:
        """Carry out a transaction: all its steps, or none."""
        replies: list[bytes] = []
        try:
            with self._tree.transaction():
                for kind, handler, arguments in steps:
                    body = handler(self, *arguments)
                    replies.append(pack_step(_STEPS[kind], 0) + body)
        except Refused as error:
            codes = [Code.ROLLED_BACK] * len(replies) + [error.code]
            codes += [Code.RUNTIME_INCONSISTENCY] * (len(steps) - len(codes))
            replies = [_refused(code) for code in codes]
        return b"".join(replies) + _END

    # --- reading ---------------------------------------------------------------------------------

    def exists(self, path: str, watch: bool) -> bytes:
        """Return a node's stat; a watch is set even if there is no node."""
        if watch:
            self._watch(path, Kind.DATA)
        return self._stat(path)

    def get_data(self, path: str, watch: bool) -> bytes:
        """Return a node's data and stat."""
        self._tree.permit(path, READ, self._ids)
        data, stat = self._tree.read(path)
        if watch:
            self._watch(path, Kind.DATA)
        return pack_buffer(data) + STAT.pack(*stat)

    def get_children(self, path: str, watch: bool) -> bytes:
        """Return the names of a node's children."""
        self._tree.permit(path, READ, self._ids)
        if watch:
            self._watch(path, Kind.CHILDREN)
        return pack_texts(self._tree.children(path))

    def get_children2(self, path: str, watch: bool) -> bytes:
        """Return the names of a node's children, and its stat."""
        return self.get_children(path, watch) + self._stat(path)

    def get_acl(self, path: str) -> bytes:
        """Return a node's access list and stat."""
        self._tree.permit(path, READ | ADMIN, self._ids)
        acl = self._tree.acl(path)
        if not permits(acl, ADMIN, self._ids):
            acl = without_digests(acl)
        return pack_acl(acl) + self._stat(path)

    def sync(self, path: str) -> bytes:
        """Reply when all has been done that was asked before."""
        return pack_text(path)

    def _stat(self, path: str) -> bytes:
        return STAT.pack(*self._tree.read(path)[1])

    def may_read(self, acl: Acl) -> bool:
        """Whether an access list lets the client read."""
        return permits(acl, READ, self._ids)

    # --- watches ---------------------------------------------------------------------------------

    def add_watch(self, path: str, mode: int) -> bytes:
        """Watch a node for good, or with all nodes below."""
        if mode not in range(len(_MODES)):
            raise Refused(Code.MARSHALLING)
        self._watch(path, _MODES[mode])
        return pack_integer(0)

    def check_watches(self, path: str, number: int) -> bytes:
        """Refuse if the client has no such watch; ZooKeeper 3.8 also counts those of others."""
        self._tree.watches.check(path, _kinds(number), self._session_id)
        return b""

    def remove_watches(self, path: str, number: int) -> bytes:
        """Take watches back."""
        self._tree.watches.remove(path, _kinds(number), self._session_id)
        return b""

    def set_watches(  # noqa: PLR0917 - the fields of the request
        self,
        seen: int,
        data: list[str],
        exist: list[str],
        child: list[str],
        persistent: Sequence[str] = (),
        recursive: Sequence[str] = (),
    ) -> bytes:
        """Carry on the watches of a former connection, whose client has seen all up to `seen`."""
        for path in data:
            self._watch_again(path, lambda stat: Event.CHANGED if stat.mzxid > seen else None)
        for path in exist:
            self._watch_again(path, lambda _: Event.CREATED, gone=None)
        for path in child:
            self._watch_again(
                path,
                lambda stat: Event.CHILD if stat.pzxid > seen else None,
                kind=Kind.CHILDREN,
            )
        for kind, paths in zip(_MODES, (persistent, recursive), strict=True):
            for path in paths:
                self._watch(path, kind)
        return b""

    def _watch_again(
        self,
        path: str,
        missed: Callable[[Stat], Event | None],
        *,
        gone: Event | None = Event.DELETED,
        kind: Kind = Kind.DATA,
    ) -> None:
        """Send the event that the client has missed, or watch if there is none.

        :param missed: returns the event for a node with this stat
        :param gone: the event if there is no node
        """
        try:
            event = missed(self._tree.read(path)[1])
        except Refused:
            event = gone
        if event is None:
            self._watch(path, kind)
        else:
            self._event(event, path)

    def _watch(self, path: str, kind: Kind) -> None:
        self._tree.watches.add(path, kind, self._session_id)


def _read(kind: int, record: Record) -> tuple[Handler, list[Any]]:
    """Read a request: what carries it out, and the arguments for that."""
    try:
        handler, fields = _REQUESTS[kind]
    except KeyError:
        raise Refused(Code.UNIMPLEMENTED) from None
    return handler, [read(record) for read in fields]


def _kinds(number: int) -> Sequence[Kind]:
    """Return the kinds of watches that a request means."""
    try:
        return list(Kind) if number == _ANY else [Kind(number)]
    except ValueError:
        raise Refused(Code.MARSHALLING) from None


def _refused(code: int) -> bytes:
    """Return the reply to a step that was not carried out."""
    return pack_step(_ERROR, code) + pack_integer(code)


def _steps(record: Record) -> list[Step]:
    steps = []
    while not (header := record.step())[1]:
        if header[0] not in _STEPS:
            raise Refused(Code.MARSHALLING)
        steps.append((header[0], *_read(header[0], record)))
    return steps


_PATH_AND_WATCH: Final = (Record.text, Record.boolean)
_PATH_AND_NUMBER: Final = (Record.text, Record.integer)
_NEW_NODE: Final = (Record.text, Record.buffer, Record.acl, Record.integer)

#: Type → what carries it out, and what reads its fields.
_REQUESTS: Final[dict[int, tuple[Handler, tuple[Callable[[Record], Any], ...]]]] = {
    CLOSE: (Requests.nothing, ()),
    _CREATE: (Requests.create, _NEW_NODE),
    _DELETE: (Requests.delete, _PATH_AND_NUMBER),
    3: (Requests.exists, _PATH_AND_WATCH),
    4: (Requests.get_data, _PATH_AND_WATCH),
    _SET_DATA: (Requests.set_data, (Record.text, Record.buffer, Record.integer)),
    6: (Requests.get_acl, (Record.text,)),
    7: (Requests.set_acl, (Record.text, Record.acl, Record.integer)),
    8: (Requests.get_children, _PATH_AND_WATCH),
    9: (Requests.sync, (Record.text,)),
    11: (Requests.nothing, ()),
    12: (Requests.get_children2, _PATH_AND_WATCH),
    _CHECK: (Requests.check, _PATH_AND_NUMBER),
    14: (Requests.multi, (_steps,)),
    _CREATE2: (Requests.create2, _NEW_NODE),
    17: (Requests.check_watches, _PATH_AND_NUMBER),
    18: (Requests.remove_watches, _PATH_AND_NUMBER),
    _CREATE_CONTAINER: (Requests.create2, _NEW_NODE),
    _CREATE_TTL: (Requests.create2, (*_NEW_NODE, Record.long)),
    AUTH: (Requests.authenticate, (Record.integer, Record.text, Record.buffer)),
    101: (Requests.set_watches, (Record.long, *[Record.texts] * 3)),
    105: (Requests.set_watches, (Record.long, *[Record.texts] * 5)),
    106: (Requests.add_watch, _PATH_AND_NUMBER),
}

#: Type of a step in a transaction → type of its reply.
_STEPS: Final[dict[int, int]] = {
    kind: kind for kind in (_CREATE, _DELETE, _SET_DATA, _CHECK, _CREATE2)
} | {
    _CREATE_CONTAINER: _CREATE2,
    _CREATE_TTL: _CREATE2,
}
