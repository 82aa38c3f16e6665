"""Creates a contender's node and lists the line in one call, and learns of the one before it.

The server answers both at once. It tells the owner of such a node of each change of the node
before it, as if that were watched, and says what a first look at it would show. So who waits in a
line asks once, and hears once: see `RedisClient.deliver`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .library import function
from .requests import LIST, READ, Asked, Step, data_and_stat, names_in

if TYPE_CHECKING:
    from distlock.engine.reply import Reply

_JOIN: Final = function("join")
#: The flag of such a node.
_QUEUED: Final = 8


class Joining(Step):
    """The creation of a node with a list of those beside it; answers what `Both` takes apart."""

    function = _JOIN

    def read(self, answer: Any) -> Any:
        """Return the outcomes, or raise the error."""
        created = super().read(answer)
        return created, names_in(answer[3])


class Both(NamedTuple):
    """Where the outcomes of a `Joining` go."""

    created: Reply
    listed: Reply

    def settle(self, value: Any, error: BaseException | None) -> None:
        """Take the answer, or the news that there will be none."""
        node, names = (None, None) if error else value
        self.created.settle(node, error)
        self.listed.settle(names, error)

    def set_exception(self, error: BaseException) -> None:
        """Take the news that there will be no answer."""
        self.settle(None, error)


def joined(create: tuple[Any, Reply], other: tuple[Any, Reply]) -> tuple[tuple[Any, Any], ...]:
    """Return two requests as one if they create a node and list its parent."""
    step, created = create
    listing, listed = other
    of_the_line = LIST, step.path.rpartition("/")[0], None
    if (listing.function, listing.path, listing.watcher) != of_the_line:
        return create, other
    joining = Joining(step.name, step.path, step.data, step.number | _QUEUED, step.outcome)
    return ((joining, Both(created, listed)),)


def path_in(outcome: Any) -> str:
    """Return the path in the outcome of a creation, where it comes first."""
    while isinstance(outcome, tuple):
        outcome = outcome[0]
    path: str = outcome
    return path


def also_told(request: Any, answer: Any) -> dict[Asked, Any]:
    """Return what else an answer tells: the outcomes of requests that need not be made.

    The answer to a `Joining` has the node before the new one, whose changes the server will report.
    """
    if isinstance(request, Joining) and len(answer) > 4:
        parent, names = request.path.rpartition("/")[0], answer[3]
        return {(READ, f"{parent}/{names[-2].decode()}"): data_and_stat(answer[4])}
    return {}
