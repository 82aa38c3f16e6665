"""Puts the effects of a machine on the wire at one node, and makes events of the answers.

An answer counts for the connection on which its request was made only: on another one, a node that
was created is deleted, and an error is no event.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from distlock.engine.errors import ConnectionLost, NoNode, NotEmpty, SessionOver
from distlock.engine.timer import call_later
from distlock.queue import events as e

from . import answers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from distlock.engine.reply import Done
    from distlock.session.session import Session

#: The answer is void: the end of its connection is what happened.
_VOID: Final = ConnectionLost | SessionOver
#: The pause before a search that the server has refused begins again, in seconds.
REFUSED_SECONDS: Final = 0.5
_PROBLEMS: Final = {NoNode: e.Problem.MISSING, NotEmpty: e.Problem.NOT_EMPTY}


class Wire:
    """The requests of a machine whose contenders' nodes are under one path."""

    session: Session
    path: str
    #: The data of a node, which describes its owner.
    data: bytes
    #: When the server was last asked for a node (`time.monotonic`).
    asked_at = 0.0
    #: The number of the connection that the machine knows of.
    _connection = 0
    #: The connection on which the server has last refused the search for a node.
    _refused_on = -1
    #: By the name of what is watched.
    _watchers: dict[str, Callable[[bool], None]]
    #: By the type of an effect: what carries it out.
    _CARRIES_OUT: ClassVar[Mapping[type, Callable[..., None]]]

    def apply(self, event: Any) -> None:
        """Apply an event to the machine, and carry its effects out."""
        raise NotImplementedError

    def follow(self, connection: int) -> None:
        """Make requests on this connection from now on; what was asked on another one is void."""
        self._connection = connection
        self._watchers.clear()

    def _void(self) -> None:
        """Take note of an answer that will never come; called from any thread."""

    # --- answers ---------------------------------------------------------------------------------

    def _answer(self, event: Callable[[Any, e.Error], Any]) -> Done:
        """Return what takes the answer to a request that is made now.

        :param event: makes the event of a value and an error
        """
        return partial(self._answered, self._connection, event)

    def _answered(
        self,
        connection: int,
        event: Callable[[Any, e.Error], Any],
        value: Any,
        error: BaseException | None,
    ) -> None:
        if isinstance(error, _VOID):
            self._void()
        elif connection == self._connection:
            self.apply(event(value, error and _PROBLEMS.get(type(error), error)))

    def _created(self, connection: int, value: Any, error: BaseException | None) -> None:
        if error is not None:
            self._answered(connection, lambda _, error: e.Created(None, error), value, error)
        elif connection == self._connection:
            self.apply(e.Created(answers.node(*value)))
        else:
            self._delete_orphan(value)

    def _delete_orphan(self, value: Any) -> None:
        path, stat = value
        self.session.delete(path, stat.ephemeralOwner)

    def _watcher(self, name: str, event: Callable[[bool], Any]) -> Callable[[bool], None]:
        """Return what hears once that a node has changed, perhaps that it was deleted.

        :param name: for `_take_back`
        :param event: makes the event
        """
        changed = self._watchers[name] = partial(self._changed, self._connection, name, event)
        return changed

    def _changed(
        self, connection: int, name: str, event: Callable[[bool], Any], deleted: bool
    ) -> None:
        if connection == self._connection:
            self._watchers.pop(name, None)
            self.apply(event(deleted))

    def _take_back(self, name: str, path: str, *, children: bool = False) -> None:
        changed = self._watchers.pop(name, None)
        if changed is not None:
            self.session.unwatch(path, changed, children=children)

    # --- effects ---------------------------------------------------------------------------------

    def carry_out(self, effects: Sequence[Any]) -> None:
        """Carry effects out, in their order."""
        rest = iter(effects)
        for effect in rest:
            if type(effect) is e.Create:
                self._create(effect, next(rest, None))
            else:
                self._CARRIES_OUT[type(effect)](self, effect)

    def _create(self, create: e.Create, look: e.List | None = None) -> None:
        """Create a node, and list the line in the same go if that is the next effect."""
        make, path = self.session.make, self.path
        also: tuple[Any, Done] | None = None
        self.asked_at = time.monotonic()
        if look is not None:
            also = make.listing(path), partial(self._answered, self._connection, e.Listed)
        self.session.create_contender(
            f"{path}/{create.name}",
            self.data,
            partial(self._created, self._connection),
            self._delete_orphan,
            sequential=create.sequential,
            also=also,
        )

    def _make_line(self, _: e.MakeLine) -> None:
        self.session.create_containers(self.path, self._answer(lambda _, error: e.LineMade(error)))

    def _list(self, effect: e.List) -> None:
        answered = self._answer(partial(answers.listed, sync=effect.sync))
        if effect.sync:
            answered = partial(self._searched, self._connection, answered)
        self.session.children(self.path, answered, sync=effect.sync)

    def _searched(
        self, connection: int, answered: Done, names: Any, error: BaseException | None
    ) -> None:
        """Search again after a pause if the server refuses: nobody else would find the node."""
        if error is None or isinstance(error, NoNode | _VOID) or connection != self._connection:
            answered(names, error)
        else:
            self._refused_on = connection
            call_later(REFUSED_SECONDS, self._pause_over)

    def _pause_over(self) -> None:
        self.session.soon(self._search_again)

    def _search_again(self) -> None:
        if self._refused_on == self._connection:  # or else the search has begun anew
            self._list(e.List(sync=True))

    def _read_line(self, _: e.ReadLine) -> None:
        self.session.read(self.path, self._answer(answers.line_read))

    def _remove_line(self, effect: e.RemoveLine) -> None:
        removed = self._answer(lambda _, error: e.LineRemoved(error))
        self.session.remove(self.path, effect.version, removed)

    def _read(self, effect: e.Read) -> None:
        path = f"{self.path}/{effect.name}"
        self.session.read(path, self._answer(partial(answers.node_read, effect.name)))

    def _watch(self, effect: e.Watch) -> None:
        name = effect.name
        changed = self._watcher(name, partial(e.Changed, name))
        watched = self._answer(partial(answers.watched, name))
        self.session.watch(f"{self.path}/{name}", changed, watched)

    def _unwatch(self, effect: e.Unwatch) -> None:
        self._take_back(effect.name, f"{self.path}/{effect.name}")

    def _delete(self, effect: e.Delete) -> None:
        self.session.delete(f"{self.path}/{effect.name}", effect.session_id)

    def _prove(self, _: e.Prove) -> None:
        proved = self._answer(lambda _value, _error: e.Proved())
        self.session.prove(lambda acknowledged: proved(acknowledged, None))

    REQUESTS: Final[dict[type, Callable[..., None]]] = {
        e.Create: _create,
        e.MakeLine: _make_line,
        e.List: _list,
        e.ReadLine: _read_line,
        e.RemoveLine: _remove_line,
        e.Read: _read,
        e.Watch: _watch,
        e.Unwatch: _unwatch,
        e.Delete: lambda self, effect: self._delete(effect),
        e.Prove: _prove,
    }
