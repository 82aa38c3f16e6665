"""What is true of a semaphore in every world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlock.keys.znodes import LEASE
from distlock.queue import events as e
from distlock.queue.semaphore import limit_in
from distlock.queue.states import State
from tests.queue.invariants import _has_watch, _is_quiet, _left_overs
from tests.queue.semaphore_world import At, Taker
from tests.queue.world import AT_REST, NAMES, UNSURE, Process, World

if TYPE_CHECKING:
    from collections.abc import Iterator


def violation(world: World) -> str | None:
    """Return what is wrong in this world, None where nothing is."""
    return next(_violations(world), None)


def _violations(world: World) -> Iterator[str]:
    takers: list[tuple[Process, int, Taker]] = world.contenders()  # type: ignore[assignment]
    yield from _too_many(world, takers)
    yield from _orphans(world, takers)
    for process, number, taker in takers:
        if taker.state not in AT_REST and _sleeps(world, process, number, taker):
            states = ", ".join(part.machine.state.name for part in taker.parts)
            yield f"{NAMES[number]} sleeps in {states}, and nobody wakes it"
        if taker.valid and process.callers[number].lapsed and not process.callers[number].left:
            yield f"{NAMES[number]} holds again what has lapsed"
    for process in world.processes:
        if _is_quiet(process):
            yield from _unaware(world, process)
            for name, number in process.watchers:
                if process.contenders[number].state is State.LEFT:
                    yield f"{NAMES[number]} has left, and its watch is still there: {name}"
    if all(map(_is_quiet, world.processes)) and not world.server.ghosts:
        yield from _at_rest(world, takers)


def _too_many(world: World, takers: list[tuple[Process, int, Taker]]) -> Iterator[str]:
    """Yield the holders of more permits than the limit ever was.

    A permit that an operator has broken does not count: its holder hears it from its watch.
    """
    held = [
        NAMES[number]
        for process, number, taker in takers
        if not process.callers[number].left
        for permit in taker.permits
        if permit.valid and permit.node and permit.node.name not in world.server.broken
    ]
    if len(held) > world.server.most:
        yield f"{' and '.join(held)} hold at the same time"


def _orphans(world: World, takers: list[tuple[Process, int, Taker]]) -> Iterator[str]:
    """Yield the nodes of living sessions that nobody will delete."""
    for name, session, _ in world.server.nodes:
        process, number, taker = takers[NAMES.index(name[3])]
        if process.id != session or process.expired or (name, session) in process.deletes:
            continue
        swept = any(name.startswith(sweep.prefix) for sweep in process.sweeps)
        if not swept and not any(_knows(part.machine, name) for part in taker.parts):
            yield f"{NAMES[number]} has forgotten its node {name}"


def _knows(machine: Any, name: str) -> bool:
    if machine.node is not None and machine.node.name == name:
        return True
    return machine.state in UNSURE and name.startswith(machine.prefix)


def _sleeps(world: World, process: Process, number: int, taker: Taker) -> bool:
    """Whether no request, watch or caller will wake a contender."""
    caller = process.callers[number]
    return not (
        not process.connected
        or process.doomed
        or process.expired
        or (caller.interrupted and not caller.left)
        or any(who == number for who, _ in process.requests)
        or any(who in (number, None) for who, _ in process.answers)
        or _has_both_watches(world, process, number, taker)
        or (not taker.permits and _has_watch(world, process, number, taker.queue))
    )


def _has_both_watches(world: World, process: Process, number: int, taker: Taker) -> bool:
    """Whether a contender hears of other permits and of another limit."""
    return any(permit.state is State.WAITING for permit in taker.permits) and all(
        (name, number) in process.watchers and (process.number, name) in world.server.watches
        for name in ("Names", "Limit")
    )


def _unaware(world: World, process: Process) -> Iterator[str]:
    """Yield those that never hear that a node is gone, which gave them a permit or the turn."""
    for number, taker in process.contenders.items():
        missing = _missing(world, taker)
        if missing and not missing <= _watched_at_heartbeat(process, number):
            yield f"{NAMES[number]} does not hear that its node is broken: {min(missing)}"


def _missing(world: World, taker: Any) -> set[str]:
    nodes = [machine.node.name for machine in taker.machines if machine.valid]
    return {name for name in nodes if not world.server.has(name)}


def _watched_at_heartbeat(process: Process, number: int) -> set[str]:
    effects: Any = process.copy().contenders[number].apply(e.Renewed())
    return {at.what.name for at in effects if isinstance(at, At) and isinstance(at.what, e.Watch)}


def _at_rest(world: World, takers: list[tuple[Process, int, Taker]]) -> Iterator[str]:
    """Yield what is wrong while no message is under way."""
    here = [one for one in takers if one[2].state not in (State.NEW, State.LEFT)]
    if not here:
        yield from _left_overs(world)
        return
    waiting = [
        taker
        for process, number, taker in here
        if taker.state not in AT_REST and not process.callers[number].interrupted
    ]
    if not waiting or any(
        taker.state in (State.BUSY, State.REFUSED)  # about to leave
        or process.callers[number].interrupted
        or _missing(world, taker)
        for process, number, taker in here
    ):
        return
    given_up = {
        name
        for process, number, taker in here
        if process.callers[number].lost
        for name in _nodes(taker)
    }
    others = [name for name, *_ in world.server.nodes if LEASE in name and name not in given_up]
    first = min(waiting, key=_number_in_queue)
    taken = [name for name in others if name not in _nodes(first)]
    written, is_set = limit_in(world.server.limit)
    limit = written if written and is_set else first.limit.own
    if len(taken) + first.wanted <= limit or len(waiting) == len(here):
        yield f"{NAMES[first.me]} waits, though permits are free"


def _nodes(taker: Taker) -> list[str]:
    return [permit.node.name for permit in taker.permits if permit.node]


def _number_in_queue(taker: Taker) -> str:
    node = taker.queue.node
    return node.name[-10:] if node else ""
