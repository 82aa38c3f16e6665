"""Runs programs: what a caller asks the servers, written once for those who block and who await.

A *program* is a generator without I/O, as httpx's ``auth_flow`` is. It yields

- a request, and is sent its value; an error is raised there,
- a list of requests, and is sent the list of their outcomes: errors stand in it as they are,
- the seconds for which it has nothing to ask, unless something wakes it.

Its caller runs it (`Driver`), so nobody else decides anything. A caller may be torn at any line,
so a program cleans up nothing: what it may have left is found by its name, and given back
`in_background`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from distlock.engine.calls import Call
from distlock.engine.errors import UNKNOWN, BadVersion, NodeExists, NoNode, NotYet, TimeUp
from distlock.engine.reply import Done
from distlock.exceptions import DistlockError

from .patience import LOOK_SECONDS, Patience

if TYPE_CHECKING:
    from distlock.engine.calls import Steps, Wake

    from .requests import SessionRequests

_T = TypeVar("_T")

#: Sends one, given what to call with the outcome.
Request: TypeAlias = Callable[[Done], None]
#: Asks, and returns its result.
Program: TypeAlias = Generator[Request | list[Request] | float, Any, _T]

#: The most requests of a list under way at a time: the session's heartbeat waits behind them, and
#: somebody may have put a megabyte into each node.
BATCH: Final = 250
#: The connection thread sends more than these in one go; a caller sends each on its own, at once.
FEW: Final = 8


class Driver(Patience):
    """Runs a caller's program against one deadline; what it asks waits for a connection."""

    #: Whether nobody waits any more. Requests that are not sent by then never are.
    left = False
    _wake: Wake

    def call(self, program: Program[_T]) -> Call[_T]:
        """Return the call that runs a program.

        It raises NoNode, NodeExists and BadVersion as the server said, and `LockUnavailable` if the
        server did not answer in time, or refused.
        """
        return Call(partial(self.steps, program), self.leave)

    def steps(self, program: Program[_T], wake: Wake) -> Steps[_T]:
        """Run a program as a part of a call."""
        self._wake = wake
        answer: Any = None
        result: _T
        while True:
            try:
                asked = _resume(program, answer)
            except StopIteration as end:
                result = end.value
                return result
            except Exception as error:
                if error is not answer and not (isinstance(answer, list) and error in answer):
                    raise
                answer = None  # it would refer to itself, by its traceback
                result = self.ended(error)
                return result
            answer = yield from self._answer(asked)

    def leave(self) -> None:
        """Give up. Repeating it is fine."""
        self.left = True

    def patience(self, asked_at: float) -> float:
        """Return the seconds to wait, at most, for the answer to what was asked then."""
        rest = self.deadline - time.monotonic()
        return 0.0 if self.session.over else min(rest, LOOK_SECONDS)

    def ended(self, error: Exception) -> Any:
        """End the call, given the error of a request that the program did not catch."""
        if isinstance(error, NoNode | NodeExists | BadVersion):
            raise error
        raise self.session.unavailable(self.key, None if isinstance(error, TimeUp) else error)

    # --- asking ----------------------------------------------------------------------------------

    def _answer(self, asked: Request | list[Request] | float) -> Steps[Any]:
        if isinstance(asked, float):
            rest = self.patience(time.monotonic())
            yield min(asked, max(rest, 0.0))
            return None if rest > 0 else TimeUp()
        if isinstance(asked, list):
            answers: list[Any] = []
            while len(answers) < len(asked):
                answers += yield from self._ask(asked[len(answers) :][:BATCH])
                vain = next((one for one in answers if isinstance(one, (TimeUp, *UNKNOWN))), None)
                if vain is not None:  # and so are the others
                    answers += [vain] * (len(asked) - len(answers))
            return answers
        (answer,) = yield from self._ask([asked])
        if isinstance(answer, NotYet) and answer.until < self.deadline:
            while (rest := answer.until - time.monotonic()) > 0:
                yield rest
            return (yield from self._answer(asked))
        return answer

    def _ask(self, requests: list[Request]) -> Steps[list[Any]]:
        asked_at = time.monotonic()
        answers: dict[int, Any] = {}
        if self.patience(asked_at) > 0:
            send = self.session.soon if len(requests) > FEW else self.session.when_connected
            send(partial(self._send, requests, answers))
        while len(answers) < len(requests):
            if (rest := self.patience(asked_at)) <= 0:
                self.left = True
                break
            yield rest
        late = TimeUp()
        return [answers.get(number, late) for number in range(len(requests))]

    def _send(self, requests: list[Request], answers: dict[int, Any]) -> None:
        if not self.left:
            _ask_all(requests, answers, self._wake)


def asking(request: Request) -> Program[Any]:
    """Make one request, and return the value."""
    return (yield request)


def below(session: SessionRequests, parent: str, request: Request) -> Program[Any]:
    """Make a request that needs a parent, and the parent as often as it is missing.

    The server removes one that has no children, perhaps between the two.
    """
    while True:
        try:
            return (yield request)
        except NoNode:
            yield partial(session.create_containers, parent)


def each(requests: Iterable[Request], *gone: type[Exception]) -> Program[list[Any]]:
    """Make all requests, and return the values, None for an error of `gone`."""
    answers: list[Any] = yield list(requests)
    for number, answer in enumerate(answers):
        if isinstance(answer, gone):
            answers[number] = None
        elif isinstance(answer, Exception):
            raise answer
    return answers


def in_background(session: SessionRequests, program: Program[object]) -> None:
    """Run a program that waits for nothing but answers, without waiting for it.

    It goes on as they come, on the connection thread. An error that it does not catch ends it.
    """

    def go_on(value: Any = None, error: Any = None) -> None:
        try:
            asked: Any = _resume(program, error or value)
        except (StopIteration, DistlockError):
            return
        except Exception as problem:
            if problem is not error:
                raise
            return
        if not isinstance(asked, list):
            session.when_connected(partial(asked, go_on))
            return
        answers: dict[int, Any] = {}

        def go_on_with_all() -> None:
            go_on([answers[number] for number in range(len(asked))])

        session.when_connected(partial(_ask_all, asked, answers, go_on_with_all))

    go_on()


def _ask_all(requests: list[Request], answers: dict[int, Any], then: Callable[[], None]) -> None:
    """Make all requests, note their answers by their numbers, and call `then` after the last."""

    def answered(number: int, value: Any, error: BaseException | None) -> None:
        answers[number] = value if error is None else error
        # One may come here while this sends another, which fails at once.
        if len(answers) == len(requests):
            then()

    for number, request in enumerate(requests):
        request(partial(answered, number))
    if not requests:
        then()


def _resume(program: Program[Any], answer: Any) -> Request | list[Request] | float:
    return program.throw(answer) if isinstance(answer, Exception) else program.send(answer)
