"""Names the requests of a session, as the functions of the server take them.

They answer as those to ZooKeeper do: with paths, and with kazoo's stats and errors.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from distlock.engine import kazoo
from distlock.engine.errors import REFUSALS
from distlock.engine.own_client import LIST, READ, Asked
from distlock.engine.protocol import EPHEMERAL

if TYPE_CHECKING:
    from collections.abc import Callable

#: How long an empty container stays, in milliseconds.
EMPTY_MS: Final = 60_000
#: The functions, with the types of their arguments; the first three name the session.
FUNCTIONS: Final = {
    "change": "$1::bigint, $2::text, $3::int, $4::jsonb",
    "join": "$1::bigint, $2::text, $3::int, $4::jsonb",
    "look": "$1::bigint, $2::text, $3::int, $4::text, $5::text, $6::boolean, $7::boolean",
    "renew": "$1::bigint, $2::text, $3::int",
    "expire": "$1::int",
}


def _answer(refusal: str | None, answer: Any) -> Any:
    if refusal:
        raise REFUSALS[refusal]
    return answer


def _done(_: Any) -> bool:
    return True


def _stat(told: list[int]) -> kazoo.ZnodeStat:
    return kazoo.ZnodeStat(*told)


def _node(told: list[Any]) -> tuple[bytes, kazoo.ZnodeStat]:
    return bytes.fromhex(told[0]), _stat(told[1])


@dataclass(slots=True)
class Request:
    """One call of a function.

    :ivar call: its name in `FUNCTIONS`
    :ivar arguments: those after the session's
    :ivar read: returns the outcome for the refusal, or None, and the answer; or raises the error
    :ivar path: of the node
    :ivar watcher: called when the watch fires
    :ivar children: whether that watches the names of the children
    :ivar function: what a message may tell beside, as `own_client.Asked` has it
    :ivar step: where it is a step, that
    :ivar outcome: returns its outcome for its part of the answer
    """

    call: str
    arguments: tuple[str, ...] = ()
    read: Callable[[str | None, Any], Any] = _answer
    path: str = ""
    watcher: Callable[[bool], None] | None = None
    children: bool = False
    function: bytes = b""
    step: tuple[Any, ...] = ()
    outcome: Callable[[Any], Any] = _done

    @property
    def creates(self) -> bool:
        """Whether it is a step that creates a node."""
        return self.step[:1] == ("create",)


def _step(
    kind: str, path: str, data: bytes, option: int, outcome: Callable[[Any], Any] = _done
) -> Request:
    """Return one step of a transaction, and a transaction by itself."""

    def read(refusal: str | None, answer: Any) -> Any:
        return outcome(_answer(refusal, answer)[0])

    parent, _, name = path.rpartition("/")
    step = kind, parent, name, data.hex(), option
    return Request("change", (json.dumps([step]),), read, path, step=step, outcome=outcome)


def _transaction(steps: list[Request]) -> Request:
    """Return all steps or none; it answers the list of their outcomes, as ZooKeeper does."""

    def read(refusal: str | None, answer: Any) -> list[Any]:
        if not refusal:
            told = [step.outcome(one) for step, one in zip(steps, answer, strict=True)]
            return [one[0] if step.creates else one for step, one in zip(steps, told, strict=True)]
        before = answer if len(steps) > 1 else 0
        return [
            *(kazoo.RolledBackError() for _ in range(before)),
            REFUSALS[refusal](),
            *(kazoo.RuntimeInconsistency() for _ in range(len(steps) - before - 1)),
        ]

    return Request("change", (json.dumps([step.step for step in steps]),), read)


def _look(path: str, watcher: Callable[[bool], None] | None, *, children: bool) -> Request:
    def read(refusal: str | None, answer: Any) -> Any:
        found = _answer(refusal, answer)
        return found if children else _node(found)

    arguments = "look", path.rstrip("/"), _flag(children), _flag(watcher)
    function = LIST if children else READ
    return Request("look", arguments, read, path.rstrip("/"), watcher, children, function)


def _flag(value: object) -> str:
    return "t" if value else "f"


class Requests:
    """Makes the requests that a client sends; `distlock.engine.protocol` tells of each."""

    session_id = 0

    def node(self, path: str, data: bytes = b"", flags: int = 0) -> Any:
        owner = self.session_id if flags & EPHEMERAL else 0

        def outcome(told: list[Any]) -> tuple[str, kazoo.ZnodeStat]:
            made, zxid, ms = told
            return made, kazoo.ZnodeStat(zxid, zxid, ms, ms, 0, 0, 0, owner, len(data), 0, zxid)

        return _step("create", path, data, flags, outcome)

    def listing(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        return _look(path, changed, children=True)

    def reading(self, path: str, changed: Callable[[bool], None] | None = None) -> Any:
        return _look(path, changed, children=False)

    def writing(self, path: str, data: bytes, version: int) -> Any:
        return _step("set", path, data, version, _stat)

    def deletion(self, path: str, version: int = -1) -> Any:
        return _step("delete", path, b"", version)

    def presence(self, path: str) -> Any:
        return _step("check", path, b"", -1)

    def multi(self, steps: list[Any]) -> Any:
        return _transaction(steps)

    def proof(self, path: str, *, by_write: bool) -> Any:
        # Each is a write, in the order of all that was acknowledged before.
        return Request("renew")

    def unwatching(self, path: str, *, children: bool = False) -> Any:
        return Request("look", ("unwatch", path, _flag(children), "f"))


#: Takes the events that wait for the session.
EVENTS: Final = Request("look", ("events", "", "f", "f"))
#: Ends the sessions whose time is over.
EXPIRE: Final = Request("expire", (str(EMPTY_MS),))


# --- joining a line in one call ------------------------------------------------------------------
#
# The server answers the creation of a contender's node and the list of the line at once, and
# watches the node before it for its owner.


def joining(step: Request) -> Request:
    """Return the step as one that also lists the parent."""

    def read(refusal: str | None, answer: Any) -> Any:
        made = step.read(refusal, answer)
        return made, answer[1] if len(answer) > 1 else [made[0].rpartition("/")[2]]

    return replace(step, call="join", read=read)


def also_told(request: Request, answer: Any) -> dict[Asked, Any]:
    """Return what else an answer tells: the outcome of a watch on the node before the new one."""
    if request.call == "join" and len(answer) > 2:
        path, node = answer[2]
        return {(READ, path): _node(node)}
    return {}
