"""Every step that a world can take next: deliveries, callers and faults."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from distlock.queue import events as e
from distlock.queue.semaphore import limit_in, setting
from distlock.queue.states import State
from tests.kit import table
from tests.queue.server import (
    carry_out,
    deliver,
    deliver_to_all,
    describe,
    fire,
    remove,
    serve,
    set_limit,
    take,
)
from tests.queue.world import AT_REST, NAMES, Caller, Process, World, Wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlock.queue.machine import Machine

    Step = tuple[str, World]


def steps(world: World) -> Iterator[Step]:
    """Yield everything that can happen next: a description, and the world after it."""
    for process in world.processes:
        for what, act in _of_process(world, process):
            yield _after(world, process.number, f"P{process.number + 1}: {what}", act)
        for number, contender in process.contenders.items():
            for what, act in _of_caller(world, process, number, contender):
                yield _after(world, process.number, f"{NAMES[number]} {what}", act)
    yield from _of_others(world)


def _after(world: World, number: int, what: str, act: Callable[[World, Process], None]) -> Step:
    then = world.copy()
    try:
        act(then, then.own(number))
    except Wrong as wrong:
        then.wrong = str(wrong)
    if table.faults:
        then.wrong = table.faults.pop()
    return what, then


def _of_process(world: World, process: Process) -> Iterator[tuple[str, Any]]:
    faults = world.faults
    attended = any(c.state not in (State.NEW, State.LEFT) for c in process.contenders.values())
    if process.connected:
        if process.requests and not process.expired:
            yield f"the server does {describe(process.requests[0][1])}", serve
        if process.answers and not process.doomed:
            yield f"takes {describe(process.answers[0][1])}", _take_answer
        if not process.doomed and not process.expired and faults.cuts and attended:
            yield "its connection is lost, unnoticed yet", _doom
        if process.doomed or process.expired:
            yield "notices that the connection is lost", _cut
        beating = any(number is None and type(r) is e.Prove for number, r in process.requests)
        wanted = not process.running or (
            faults.beats and any(map(process.would_watch, process.contenders.values()))
        )
        if attended and wanted and not beating:
            yield "sends a heartbeat", _beat
    else:
        yield "connects", _reconnect
        if process.unseen and not process.expired:
            yield "connects to a server that lags behind", partial(_reconnect, lags=True)
            if faults.deposed:
                yield "connects to a deposed leader", _connect_to_deposed
    if process.running and faults.lapses:
        yield "its session deadline passes", _lapse
    if not process.running and not process.expired and faults.expiries and attended:
        yield "its session expires", _expire
    if any(map(partial(_has_lapsed, process), process.contenders)):
        yield "notices that a grant has lapsed", _notice_lapse


def _has_lapsed(process: Process, number: int) -> bool:
    """Whether a contender has a grant that is worth nothing any more."""
    granted = process.contenders[number].state is State.HOLDING
    return (granted or process.callers[number].given is not None) and not process.valid(number)


def _take_answer(world: World, process: Process) -> None:
    (number, answer), process.answers = process.answers[0], process.answers[1:]
    take(world, process, number, answer)


def _doom(world: World, process: Process) -> None:
    world.spend("cuts")
    process.doomed = True
    process.answers = ()


def _cut(world: World, process: Process) -> None:
    process.connected = process.doomed = process.deposed = False
    process.requests = process.answers = ()
    process.watchers = frozenset()
    process.lag = ()
    process.local.clear()
    watches = frozenset(pair for pair in world.server.watches if pair[0] != process.number)
    world.server = world.server._replace(watches=watches)
    deliver_to_all(world, process, e.Disconnected())


def _reconnect(world: World, process: Process, *, lags: bool = False) -> None:
    process.connected = True
    process.lag, process.unseen = (process.unseen if lags else ()), ()
    if process.expired:
        world.server = world.server._replace(sessions=world.server.sessions + 1)
        process.id = world.server.sessions
        process.expired = process.running = False
        process.deletes = process.sweeps = ()
    for delete in process.deletes:
        process.requests += ((None, e.Delete(*delete)),)
    # Of two mutations, one does not repeat it, and the other one asks without a ``sync``.
    process.sweeps = tuple(s for s in process.sweeps if getattr(s, "repeated", True))
    for sweep in process.sweeps:
        process.requests += ((None, sweep),)
    deliver_to_all(world, process, e.Connected())


def _connect_to_deposed(world: World, process: Process) -> None:
    world.spend("deposed")
    process.deposed = True
    _reconnect(world, process, lags=True)


def _beat(world: World, process: Process) -> None:
    if process.running:
        world.spend("beats")
    process.requests += ((None, e.Prove()),)


def _lapse(world: World, process: Process) -> None:
    world.spend("lapses")
    for number in process.contenders:
        if process.holds(number):
            process.callers[number] = process.callers[number]._replace(lapsed=True)
    process.running = False


def _expire(world: World, process: Process) -> None:
    world.spend("expiries")
    process.expired = True
    process.answers = ()
    server = world.server
    watches = frozenset(pair for pair in server.watches if pair[0] != process.number)
    world.server = server._replace(ghosts=server.ghosts | {process.id}, watches=watches)


def _notice_lapse(world: World, process: Process) -> None:
    deliver_to_all(world, process, e.Lapsed())


def _of_caller(
    world: World, process: Process, number: int, contender: Machine
) -> Iterator[tuple[str, Any]]:
    caller = process.callers[number]
    state = contender.state
    if state is State.NEW:
        if caller.left or not _is_next(process, number) or not _may_downgrade(process, contender):
            return
        yield "joins", partial(_join, number=number)
        others = (c for n, c in process.contenders.items() if n != number)
        if contender.policy.hands_over and any(c.state is not State.NEW for c in others):
            yield "joins after its neighbour", partial(_join, number=number, follows=True)
        if world.faults.interrupts:
            for sent in range(process.first_requests):
                yield (
                    f"is interrupted in its join after {sent} requests",
                    partial(_join, number=number, sent=sent),
                )
    elif caller.news is not None:
        yield f"hears {describe(caller.news)}", _hear(number)
    elif caller.posted:
        yield "has its release applied", partial(_leave, number=number)
    elif _is_downgrading(process, contender):
        return  # the caller waits for the read lock
    elif not caller.left and (
        process.has_answer(number) or caller.interrupted or world.faults.leaves
    ):
        yield "leaves", partial(_leave, number=number)
        yield from _of_holder(world, process, number)
        if (state is State.HOLDING or caller.given is not None) and world.faults.releases:
            yield "sends its delete", partial(_release, number=number)


def _of_holder(world: World, process: Process, number: int) -> Iterator[tuple[str, Any]]:
    """Yield how a caller learns, other than by its contender, that it has lost the lock."""
    contender = process.contenders[number]
    if world.faults.overstays and (process.holds(number) or contender.state is State.LOST):
        yield "overstays", _lose(number, "overstays", e.GiveUp("max_hold"))
    if (
        world.faults.looks
        and process.holds(number)
        and not all(map(world.server.has, process.names_of(contender)))
    ):
        yield "finds its node gone", _lose(number, "looks", e.GiveUp("broken"))


def _lose(number: int, fault: str, news: e.Event) -> Callable[[World, Process], None]:
    def lose(world: World, process: Process) -> None:
        world.spend(fault)
        process.callers[number] = process.callers[number]._replace(lost=True, news=news)

    return lose


def _hear(number: int) -> Callable[[World, Process], None]:
    def hear(world: World, process: Process) -> None:
        caller = process.callers[number]
        process.callers[number] = caller._replace(news=None)
        deliver(world, process, number, caller.news)
        if process.contenders[number].state is State.HOLDING:
            raise Wrong(f"{NAMES[number]} goes on holding what its caller has lost")

    return hear


def _is_next(process: Process, number: int) -> bool:
    """Contenders of one kind and process are alike, so they join in order."""
    own = process.contenders[number]
    return not any(
        n < number
        and c.state is State.NEW
        and c.policy == own.policy
        and c.max_waiters == own.max_waiters
        for n, c in process.contenders.items()
    )


def _may_downgrade(process: Process, contender: Machine) -> bool:
    """Whether a contender need not take the place of a writer, or may."""
    return contender.policy.spot is None or (
        contender.policy.spot.valid and not process.callers[0].left
    )


def _is_downgrading(process: Process, contender: Machine) -> bool:
    """Whether another contender is about to take the place of this one."""
    return any(
        c.policy.spot is contender and c.state not in AT_REST for c in process.contenders.values()
    )


def _join(
    world: World, process: Process, number: int, *, follows: bool = False, sent: int | None = None
) -> None:
    effects = process.contenders[number].apply(e.Join(follows))
    if sent is not None:
        world.spend("interrupts")
        process.callers[number] = Caller(interrupted=True)
        effects = effects[:sent]
    carry_out(world, process, number, effects)


def _release(world: World, process: Process, number: int) -> None:
    """Send the delete from the calling thread, hand the lock over, and post `Leave`."""
    world.spend("releases")
    contender, caller = process.contenders[number], process.callers[number]
    node = contender.node
    assert node is not None
    holds = process.holds(number)
    process.callers[number] = caller._replace(left=True, posted=True)
    for offer in process.offers:
        giver, follower = offer
        behind = process.callers[follower]
        if giver == number and holds and behind.given is None:
            epoch = contender.epoch if caller.given is None else caller.given
            process.callers[follower] = behind._replace(given=epoch)
            process.note_grant(world, process.contenders[follower])
    carry_out(world, process, number, [e.Delete(node.name, node.session_id)])


def _leave(world: World, process: Process, number: int) -> None:
    caller = process.callers[number]
    if not (process.has_answer(number) or caller.left or caller.interrupted):
        world.spend("leaves")
    process.callers[number] = caller._replace(left=True, posted=False)
    deliver(world, process, number, e.LEAVE)


def _of_others(world: World) -> Iterator[Step]:
    server, faults = world.server, world.faults
    for session in server.ghosts:
        then = world.copy()
        then.server = server._replace(ghosts=server.ghosts - {session})
        remove(then, *(name for name, owner, _ in server.nodes if owner == session))
        yield f"the server deletes the nodes of session {session}", then
    names = [name for name, *_ in server.nodes]
    if faults.breaks:
        for name in names:
            yield _operator(world, "breaks", name, "breaks")
    if faults.limits and server.permits:
        for limit in {1, 2} - {limit_in(server.limit)[0]}:
            then = world.copy()
            then.spend("limits")
            set_limit(then, setting(limit))
            yield f"the limit is set to {limit}", then
    if faults.touches:
        for name in names:
            then = world.copy()
            then.spend("touches")
            then.server = server._replace(asked=server.asked | {name})
            remove(then, name, deleted=False)
            yield f"an operator asks {describe(name)} to leave", then
    if faults.removals and server.line:
        what, then = _operator(world, "removals", *names, "removes the line with")
        fire(then, "Line", "Limit", "Names", deleted=True)
        then.server = then.server._replace(line=0, limit=b"", version=0, permits=False)
        yield what, then
    if faults.renewals and server.line and server.number:
        what, then = _operator(world, "renewals", *names, "begins the line anew, without")
        fire(then, "Line", deleted=True)
        zxid = server.zxid + 1
        then.server = then.server._replace(line=zxid, zxid=zxid, number=server.number - 1)
        yield what, then


def _operator(world: World, fault: str, *names_and_what: str) -> Step:
    *names, what = names_and_what
    then = world.copy()
    then.spend(fault)
    then.server = then.server._replace(broken=then.server.broken.union(names))
    remove(then, *names)
    return f"an operator {what} {', '.join(map(describe, names)) or 'nothing in it'}", then
