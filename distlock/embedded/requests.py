"""Carries out the requests of one connection on the tree, and writes the replies.

Source: ZooKeeper's ``PrepRequestProcessor``, ``FinalRequestProcessor`` and ``ZooDefs.OpCode``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final, TypeAlias

from distlock import jute
from distlock.jute import Record

from . import rules
from .rules import Acl, Code, Entry, Refused, Who, parent, permits
from .tree import SYSTEM_NODES, Event, Kind, MemoryTree

Handler: TypeAlias = Callable[..., bytes]

# The types of requests that may be steps of a transaction.
_ERROR: Final = -1
_CREATE, _DELETE, _SET_DATA, _CHECK, _CREATE2, _CREATE_CONTAINER = 1, 2, 5, 13, 15, 19

# The flags of a create: the bits of the first two, and the only other one.
_EPHEMERAL, _SEQUENTIAL, _CONTAINER = 1, 2, 4

#: The kinds of watches that stay, by their numbers in a request for one.
_MODES: Final = (Kind.PERSISTENT, Kind.RECURSIVE)

#: Ends the reply to a transaction.
_END: Final = jute.pack_step(_ERROR, -1, end=True)

_PATH_AND_WATCH: Final = (Record.text, Record.boolean)
_PATH_AND_NUMBER: Final = (Record.text, Record.integer)
_NEW_NODE: Final = (Record.text, Record.buffer, Record.acl, Record.integer)

#: Type of a step in a transaction → type of its reply.
_STEPS: Final[dict[int, int]] = {
    **{kind: kind for kind in (_CREATE, _DELETE, _SET_DATA, _CHECK, _CREATE2)},
    _CREATE_CONTAINER: _CREATE2,
}


class Requests:
    """The requests of one session over one connection, of the client at this IP address."""

    def __init__(
        self, tree: MemoryTree, session_id: int, address: str, event: Callable[[Event, str], None]
    ) -> None:
        self._tree = tree
        self._session_id = session_id
        self._event = event
        #: The client itself, as access lists name it.
        self._ids: dict[Who, None] = {("ip", address): None}

    def perform(self, kind: int, record: Record) -> bytes:
        """Carry out one request and return the body of its reply."""
        handler, arguments = self._read(kind, record)
        return handler(self, *arguments)

    def _read(self, kind: int, record: Record) -> tuple[Handler, list[Any]]:
        if kind not in self._HANDLERS:
            raise Refused(Code.UNIMPLEMENTED)
        handler, fields = self._HANDLERS[kind]
        return handler, [read(record) for read in fields]

    def _nothing(self) -> bytes:
        return b""

    def _authenticate(self, _: int, scheme: str, credentials: bytes | None) -> bytes:
        """Let the client be one more of those whom access lists name."""
        if scheme != "ip":  # that is known
            self._ids[rules.identify(scheme, credentials or b"")] = None
        return b""

    def _create(self, path: str, data: bytes | None, acl: list[Entry], flags: int) -> bytes:
        if not 0 <= flags <= _CONTAINER:
            raise Refused(Code.BAD_ARGUMENTS)
        sequential = bool(flags & _SEQUENTIAL)
        rules.validate(f"{path}1" if sequential else path)
        kept = rules.resolve(acl, self._ids)
        self._permit(parent(path), rules.CREATE)
        made = self._tree.create(
            path,
            data,
            owner=self._session_id if flags & _EPHEMERAL else 0,
            sequential=sequential,
            container=flags == _CONTAINER,
            acl=kept,
        )
        return jute.pack_text(made)

    def _create2(self, path: str, *fields: Any) -> bytes:
        made = self._create(path, *fields)
        return made + self._stat(Record(made).text())

    def _delete(self, path: str, version: int) -> bytes:
        if path in SYSTEM_NODES:
            raise Refused(Code.BAD_ARGUMENTS)
        self._permit(parent(path), rules.DELETE)
        self._tree.delete(path, version)
        return b""

    def _set_data(self, path: str, data: bytes | None, version: int) -> bytes:
        self._permit(path, rules.WRITE)
        return jute.STAT.pack(*self._tree.write(path, data, version))

    def _set_acl(self, path: str, acl: list[Entry], version: int) -> bytes:
        kept = rules.resolve(acl, self._ids)
        self._permit(path, rules.ADMIN)
        return jute.STAT.pack(*self._tree.set_acl(path, kept, version))

    def _check(self, path: str, version: int) -> bytes:
        self._permit(path, rules.READ)
        self._tree.check(path, version)
        return b""

    def _multi(self, record: Record) -> bytes:
        """Carry out a transaction: all its steps, or none."""
        steps = []
        while not (header := record.step())[1]:
            if header[0] not in _STEPS:
                raise Refused(Code.MARSHALLING)
            steps.append((_STEPS[header[0]], *self._read(header[0], record)))
        replies: list[bytes] = []
        try:
            with self._tree.transaction():
                for kind, handler, arguments in steps:
                    body = handler(self, *arguments)
                    replies.append(jute.pack_step(kind, 0) + body)
        except Refused as error:
            codes = [Code.ROLLED_BACK] * len(replies) + [error.code]
            codes += [Code.RUNTIME_INCONSISTENCY] * (len(steps) - len(codes))
            replies = [_refused(code) for code in codes]
        return b"".join(replies) + _END

    def _exists(self, path: str, watch: bool) -> bytes:
        """Return a node's stat; a watch is set even if there is no node."""
        if watch:
            self._watch(path, Kind.DATA)
        return self._stat(path)

    def _get_data(self, path: str, watch: bool) -> bytes:
        self._permit(path, rules.READ)
        data, stat = self._tree.read(path)
        if watch:
            self._watch(path, Kind.DATA)
        return jute.pack_buffer(data) + jute.STAT.pack(*stat)

    def _get_children(self, path: str, watch: bool) -> bytes:
        self._permit(path, rules.READ)
        if watch:
            self._watch(path, Kind.CHILDREN)
        return jute.pack_texts(self._tree.children(path))

    def _get_children2(self, path: str, watch: bool) -> bytes:
        return self._get_children(path, watch) + self._stat(path)

    def _get_acl(self, path: str) -> bytes:
        self._permit(path, rules.READ | rules.ADMIN)
        acl = self._tree.acl(path)
        if not permits(acl, rules.ADMIN, self._ids):
            acl = rules.without_digests(acl)
        return jute.pack_acl(acl) + self._stat(path)

    def _sync(self, path: str) -> bytes:
        return jute.pack_text(path)

    def _stat(self, path: str) -> bytes:
        return jute.STAT.pack(*self._tree.read(path)[1])

    def _permit(self, path: str, permissions: int) -> None:
        if not permits(self._tree.acl(path), permissions, self._ids):
            raise Refused(Code.NO_AUTH)

    def may_read(self, acl: Acl) -> bool:
        return permits(acl, rules.READ, self._ids)

    def _add_watch(self, path: str, mode: int) -> bytes:
        if mode not in range(len(_MODES)):
            raise Refused(Code.MARSHALLING)
        self._watch(path, _MODES[mode])
        return jute.pack_integer(0)

    def _check_watches(self, path: str, number: int) -> bytes:
        """Refuse if the client has no such watch; ZooKeeper 3.8 also counts those of others."""
        self._tree.watching(path, _kinds(number), self._session_id)
        return b""

    def _remove_watches(self, path: str, number: int) -> bytes:
        self._tree.unwatch(path, _kinds(number), self._session_id)
        return b""

    def _set_watches(  # noqa: PLR0917 - the fields of the request
        self,
        seen: int,
        data: list[str],
        exist: list[str],
        child: list[str],
        persistent: Iterable[str] = (),
        recursive: Iterable[str] = (),
    ) -> bytes:
        """Carry on the watches of a former connection, whose client has seen all up to `seen`."""
        for event, paths in ((Event.CHANGED, data), (Event.CREATED, exist), (Event.CHILD, child)):
            for path in paths:
                self._watch_again(event, path, seen)
        for path in persistent:
            self._watch(path, Kind.PERSISTENT)
        for path in recursive:
            self._watch(path, Kind.RECURSIVE)
        return b""

    def _watch_again(self, event: Event, path: str, seen: int) -> None:
        """Send the event that the client has missed, or watch if there is none."""
        missed: Event | None = event
        try:
            stat = self._tree.read(path)[1]
        except Refused:
            missed = Event.DELETED if event != Event.CREATED else None
        else:
            changed = {Event.CHANGED: stat.mzxid, Event.CHILD: stat.pzxid}
            if event in changed and changed[event] <= seen:
                missed = None
        if missed is not None:
            self._event(missed, path)
        else:
            self._watch(path, Kind.CHILDREN if event == Event.CHILD else Kind.DATA)

    def _watch(self, path: str, kind: Kind) -> None:
        self._tree.watch(path, kind, self._session_id)

    #: Type → what carries it out, and what reads its fields.
    _HANDLERS: ClassVar[dict[int, tuple[Handler, Sequence[Callable[[Record], Any]]]]] = {
        jute.CLOSE: (_nothing, ()),
        _CREATE: (_create, _NEW_NODE),
        _DELETE: (_delete, _PATH_AND_NUMBER),
        3: (_exists, _PATH_AND_WATCH),
        4: (_get_data, _PATH_AND_WATCH),
        _SET_DATA: (_set_data, (Record.text, Record.buffer, Record.integer)),
        6: (_get_acl, (Record.text,)),
        7: (_set_acl, (Record.text, Record.acl, Record.integer)),
        8: (_get_children, _PATH_AND_WATCH),
        9: (_sync, (Record.text,)),
        11: (_nothing, ()),
        12: (_get_children2, _PATH_AND_WATCH),
        _CHECK: (_check, _PATH_AND_NUMBER),
        14: (_multi, (lambda record: record,)),
        _CREATE2: (_create2, _NEW_NODE),
        17: (_check_watches, _PATH_AND_NUMBER),
        18: (_remove_watches, _PATH_AND_NUMBER),
        _CREATE_CONTAINER: (_create2, _NEW_NODE),
        jute.AUTH: (_authenticate, (Record.integer, Record.text, Record.buffer)),
        101: (_set_watches, (Record.long, *[Record.texts] * 3)),
        105: (_set_watches, (Record.long, *[Record.texts] * 5)),
        106: (_add_watch, _PATH_AND_NUMBER),
    }


def _kinds(number: int) -> Sequence[Kind]:
    try:
        return list(Kind) if number == 3 else [Kind(number)]
    except ValueError:
        raise Refused(Code.MARSHALLING) from None


def _refused(code: int) -> bytes:
    return jute.pack_step(_ERROR, code) + jute.pack_integer(code)
