"""Safety measures of distlock, each taken back: some schedule shows the harm.

``python -m tests.simulate --mutations`` tells after how many seeds. A mutation replaces attributes
of classes; most are of distlock, and two of the simulated client, which keeps the rules of
`distlock.engine.zookeeper.connection`.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from distlock import process
from distlock.contenders.batch import BatchMember
from distlock.contenders.contender import QueuedContender
from distlock.contenders.waiting import Attempt
from distlock.engine import calls, deadline
from distlock.engine.deadline import SessionDeadline
from distlock.engine.errors import ConnectionLost
from distlock.engine.reply import Reply
from distlock.lease.hold import LeaseHold
from distlock.locks import held_permits
from distlock.locks.leader import Leader
from distlock.owner.hold import Hold
from distlock.queue import events as e
from distlock.queue.machine import Machine
from distlock.queue.semaphore import Permit, Turn
from distlock.queue.states import State
from distlock.session import registry
from distlock.session.guaranteed_delete import GuaranteedDelete
from distlock.session.lease_clock import LeaseClock
from distlock.session.session import Session
from distlock.session.watches import SharedWatches
from tests.kit import table

from .client import Client
from .process import replacing
from .schedule import OF_REDIS, Result, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlock.queue import events as e

#: The seeds of a harm that needs several things to come together.
MANY: Final = 3000
#: Those of a harm that no run has shown yet; the tests leave it out.
SOUGHT: Final = 10_000


class Mutation(NamedTuple):
    """What is replaced, by what, and where the harm shows.

    :ivar seeds: within how many seeds it is found, with a reserve
    :ivar harm: what the judge says, as a pattern
    """

    what: str
    harm: str
    replaced: tuple[tuple[Any, str, Any], ...]
    seeds: int = 100


def _machines(name: str, method: Callable[..., Any]) -> tuple[tuple[Any, str, Any], ...]:
    """Replace a method of the machine, which finds its methods by a table."""
    return tuple((one, name, method) for one in (Machine,))


_renew = SessionDeadline.renew
_settle, _answered = Reply.settle, GuaranteedDelete._answered


def _forget_contacts(self: SessionDeadline, sent_at: float, session_timeout: float) -> None:
    self._counted = None
    self._until = min(self._until, sent_at + session_timeout)


def _renew_for_all(self: SessionDeadline, sent_at: float, session_timeout: float) -> None:
    _renew(self, sent_at, session_timeout)
    self._until = max(self._until, sent_at + session_timeout)


def _renew_when_answered(self: SessionDeadline, _sent_at: float, session_timeout: float) -> None:
    _renew(self, deadline.now(), session_timeout)


def _by_sync(method: Callable[..., None]) -> Callable[..., None]:
    """Return the method with a sync for each proof that it asks for."""

    def replaced(self: Session, *args: Any, **options: Any) -> None:
        make = self._client.proof
        self._client.proof = lambda path, **_: make(path, by_write=False)  # type: ignore[method-assign]
        try:
            method(self, *args, **options)
        finally:
            self._client.proof = make  # type: ignore[method-assign]

    return replaced


def _lose_lost_deletes(
    self: GuaranteedDelete, path: str, session: int, value: Any, error: BaseException | None
) -> None:
    if isinstance(error, ConnectionLost):
        self._settled(path)
    else:
        _answered(self, path, session, value, error)


def _leave_and_forget(self: Machine, _: Any) -> None:
    self.state = State.LEFT


def _sweep_once(self: GuaranteedDelete, path: str, prefix: str) -> None:
    session_id = self._session.id

    def found(names: Any, _: object) -> None:
        for name in names or ():
            if name.startswith(prefix):
                self.delete(f"{path}/{name}", session_id)

    self._session.children(path, found, sync=True)


def _find_by_joining_anew(self: Machine, _: Any) -> None:
    self._join_anew()


def _have_turn_when_any_has_gone(self: Machine, event: e.Changed) -> None:
    if event.name == self._watched and event.deleted and self.standing:
        self._have_turn()
    elif event.name == self._watched:
        self._watching -= {event.name}
        self._look()
    else:
        self._own_changed(event)


def _lose_without_deleting(self: Machine, _: Any) -> None:
    if self.state is State.HOLDING:
        self._lose("max_hold")


def _wait_for_what_is_gone(self: Machine, event: e.Watched) -> None:
    if event.name != self._watched:
        self._own_read(event)


def _settle_twice(self: Reply, value: Any, error: BaseException | None) -> None:
    done = self._done
    _settle(self, value, error)
    if done is not None:
        done(value, error)


def _leave_in_the_other_order(self: BatchMember) -> None:
    batch = self._batch
    if batch is not None and self.granted and not (self.left or self.lost):
        follower = batch.reserve_behind(self)
        if follower is not None:
            follower.begin()
    _leave_batch(self)


_leave_batch = BatchMember.leave


def _remember_watchers(self: SharedWatches, watched: Any, changed: Any) -> None:
    self._discard(watched, changed)


def _judge_with_one_too_many(self: Permit, names: Any) -> None:
    _judge(self, names[:-1] if self.node is None or self.node.name != names[-1] else names[1:])


_judge = Permit._judge


def _no_catching_up(self: QueuedContender) -> None:
    """Miss that the connection has changed."""
    self._connection = self.session.connection


# --- leases and leaders --------------------------------------------------------------------------


def _server_time_alone(self: LeaseClock, term: Any) -> float:
    return float(self._readings[-1].time - term.mtime / 1000) if self._readings else 0.0


def _without_checks(self: Session, steps: Any, done: Any) -> None:
    _transact(self, lambda make: [one for one in steps(make) if one[0] != "check"], done)


def _whatever_the_version(self: Session, steps: Any, done: Any) -> None:
    def any_version(make: Any) -> list[Any]:
        return [(*one[:-1], -1) if one[0] in ("write", "delete") else one for one in steps(make)]

    _transact(self, any_version, done)


_transact = Session.transact


def _valid_from_the_answer(self: LeaseHold, _: Any, term: Any) -> None:
    self.term = term
    self._lease.ends_at = deadline.now() + term.ttl


def _stop_the_work_only(self: Leader) -> None:
    self._stopped = True
    self._news.open()


# --- the driver, and sessions --------------------------------------------------------------------


def _until_the_deadline(self: SessionDeadline, _: int) -> bool:
    return self.running


def _counted_when_sent(self: SessionDeadline, sent_at: float, session_timeout: float) -> None:
    self._contacts = deque([(sent, sent) for sent, _ in self._contacts], maxlen=64)
    _renew(self, sent_at, session_timeout)


def _take_what_was_lost(self: Attempt[Any]) -> float | None:
    again, self.deadline = self.deadline, 0.0 if self.contender.granted else self.deadline
    try:
        return _patience(self)
    finally:
        self.deadline = again


_patience = Attempt.patience


def _without_hook(module: Any) -> tuple[tuple[Any, str, Any], ...]:
    """Let a module forget nothing in a forked child."""
    hooks = [one for one in process._in_child if one.__module__ != module.__name__]
    return ((process, "_in_child", hooks),)


MUTATIONS: Final = (
    Mutation(
        "deadline: two thirds of T after each answer, whatever the leader has counted",
        "two holders",
        ((SessionDeadline, "connected", _forget_contacts),),
        MANY,
    ),
    Mutation(
        "deadline: the whole of T after each answer",
        "two holders",
        ((SessionDeadline, "renew", _renew_for_all),),
        MANY,
    ),
    Mutation(
        "deadline: from the answer, not from the request",
        "two holders",
        ((SessionDeadline, "renew", _renew_when_answered),),
        SOUGHT,
    ),
    Mutation(
        "the timeout that a connection was granted is the session's",
        "two holders",
        ((Client, "least", lambda *of: of[2]),),
        MANY,
    ),
    Mutation(
        "deadline: two thirds of T after each answer, and a late renewal is proved by a sync",
        "two holders",
        (
            (SessionDeadline, "connected", _forget_contacts),
            (Session, "prove", _by_sync(Session.prove)),
        ),
        MANY,
    ),
    Mutation(
        "the search for a lost create begins with a sync",
        "a newcomer got",
        ((Session, "children", _by_sync(Session.children)),),
        MANY,
    ),
    Mutation(
        "a delete whose answer was lost is not repeated",
        "a newcomer got",
        ((GuaranteedDelete, "_answered", _lose_lost_deletes),),
    ),
    Mutation(
        "the create of one who has left is not looked for",
        "a newcomer got",
        _machines("_leave_unanswered", _leave_and_forget),
    ),
    Mutation(
        "the lost create of one who has left is looked for once",
        "a newcomer got",
        ((GuaranteedDelete, "sweep", _sweep_once),),
    ),
    Mutation(
        "after a lost create another one is sent",
        "a newcomer got|nodes are left",
        _machines("_find", _find_by_joining_anew),
    ),
    Mutation(
        "the one ahead has gone, so it is our turn",
        "two holders",
        _machines("_ahead_changed", _have_turn_when_any_has_gone),
    ),
    Mutation(
        "the one ahead had gone before it was watched, and nobody looks",
        "a newcomer got",
        _machines("_ahead_watched", _wait_for_what_is_gone),
    ),
    Mutation(
        "max_hold without a delete",
        "after its max_hold",
        _machines("_give_up", _lose_without_deleting),
    ),
    Mutation(
        "a holder does not watch its own node",
        "does not know that it was broken",
        _machines("_renewed", lambda *_: None),
    ),
    Mutation("an answer is delivered twice", "a newcomer got", ((Reply, "settle", _settle_twice),)),
    Mutation(
        "a turn begins before the one before it ends",
        "two holders",
        ((BatchMember, "leave", _leave_in_the_other_order),),
        400,
    ),
    Mutation(
        "a watch that nobody needs stays",
        "watches are left",
        ((SharedWatches, "_unwatch", _remember_watchers),),
    ),
    Mutation(
        "a contender misses that the connection was lost",
        "a newcomer got|are left",
        ((QueuedContender, "connection_changed", _no_catching_up),),
    ),
    Mutation(
        "a torn caller leaves its contender in line",
        "a newcomer got|are left",
        ((Attempt, "give_up", lambda _: None),),
    ),
    Mutation(
        "one permit too many",
        "a newcomer got|two holders|never ended|are left",
        ((Permit, "_judge", _judge_with_one_too_many),),
    ),
    Mutation(
        "deadline: a hold from before a gap is held again",
        "two holders",
        ((SessionDeadline, "unbroken", _until_the_deadline),),
        SOUGHT,
    ),
    Mutation(
        "deadline: a contact counts from its sending",
        "two holders",
        ((SessionDeadline, "renew", _counted_when_sent),),
        SOUGHT,
    ),
    Mutation(
        "deadline: a contact is counted a quarter of T later",
        "two holders",
        ((deadline, "_REPORTED", 1 / 4),),
        SOUGHT,
    ),
    Mutation(
        "the deadline of the last session counts for the next one",
        "two holders",
        ((SessionDeadline, "end", lambda _: None),),
        SOUGHT,
    ),
    Mutation("an interrupted call undoes nothing", "", ((calls.Call, "_undo", lambda _: None),)),
    Mutation(
        "a grant that was lost before its call ended is the end",
        "",
        ((Attempt, "patience", _take_what_was_lost),),
        SOUGHT,
    ),
    Mutation(
        "a lease ends by the server's clock alone",
        "two holders",
        ((LeaseClock, "age", _server_time_alone),),
        SOUGHT,
    ),
    Mutation(
        "a lease is written whatever node is there",
        "two holders",
        ((Session, "transact", _without_checks),),
        SOUGHT,
    ),
    Mutation(
        "a lease is written whatever version is there",
        "has token|two holders",
        ((Session, "transact", _whatever_the_version),),
    ),
    Mutation(
        "a lease is valid from the answer on",
        "two holders",
        ((LeaseHold, "renewed", _valid_from_the_answer),),
        SOUGHT,
    ),
    Mutation(
        "a leader that is stopped waits on",
        "after stop()",
        ((Leader, "stop", _stop_the_work_only),),
    ),
    Mutation(
        "a hold does not know that it was forked",
        "is believed",
        ((Hold, "lost", property(lambda self: self._grant.lost)),),
        MANY,
    ),
    Mutation(
        "a forked child uses its parent's session", "in a child", _without_hook(registry), MANY
    ),
    Mutation(
        "a forked child has its parent's permits", "in a child", _without_hook(held_permits), SOUGHT
    ),
)


@contextmanager
def put_back(mutation: Mutation) -> Iterator[None]:
    """Let a safety measure be missing."""
    machines = Machine, Turn, Permit
    try:
        with replacing(mutation.replaced):
            for one in machines:
                one.__init_subclass__()
            yield
    finally:
        for one in machines:
            one.__init_subclass__()
        table.faults.clear()  # of the machines as they were here


def find(mutation: Mutation, first: int = 0) -> Result | None:
    """Return the first schedule that shows the harm, None if none does."""
    with put_back(mutation):
        for seed in range(first, first + mutation.seeds):
            # Most replace what only ZooKeeper has, or its requests.
            result = run(seed) if (seed + 1) % OF_REDIS else None
            if result is not None and result.violation:
                return result
    return None


def main(only: str) -> int:
    """Print for each mutation, whose name has this text, after how many seeds it is found."""
    missed = 0
    for mutation in MUTATIONS:
        if only in mutation.what:
            began = time.monotonic()
            found = find(mutation)
            missed += found is None
            seconds = time.monotonic() - began
            seeds = f"{found.seed + 1:5}" if found else f">{mutation.seeds:4}"
            print(f"{seeds}  {seconds:6.1f} s  {mutation.what}")  # noqa: T201
            print(f"       {found.violation if found else 'missed'}", flush=True)  # noqa: T201
    return missed
