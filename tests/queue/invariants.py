"""Invariants: they are true in every world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlock.queue import events as e
from distlock.queue.states import State
from tests.queue.world import NAMES, UNSURE, Process, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.queue.machine import Machine


def violation(world: World) -> str | None:
    """Return what is wrong in this world, None where nothing is."""
    return next(_violations(world), None)


def _violations(world: World) -> Iterator[str]:
    contenders = world.contenders()
    yield from _two_holders(world, contenders)
    yield from _orphans(world)
    for process, number, contender in contenders:
        caller = process.callers[number]
        if not process.has_answer(number) and _sleeps(world, process, number, contender):
            yield f"{NAMES[number]} sleeps in {contender.state.name}, and nobody wakes it"
        if process.holds(number) and caller.lapsed:
            yield f"{NAMES[number]} holds again what has lapsed"
        if contender.valid and not caller.left and _is_unaware(world, process, number, contender):
            yield f"{NAMES[number]} holds, and does not hear that its node is broken"
        if _is_deaf(world, process, contender):
            yield f"{NAMES[number]} does not hear that it is asked to leave"
    for process in world.processes:
        if _is_quiet(process):
            for name, number in process.watchers:
                if process.contenders[number].state is State.LEFT:
                    yield f"{NAMES[number]} has left, and its watch is still there: {name}"
    if all(_is_quiet(process) for process in world.processes) and not world.server.ghosts:
        yield from _at_rest(world, contenders)


def _two_holders(world: World, contenders: list[tuple[Process, int, Machine]]) -> Iterator[str]:
    """Yield two who believe, each by its own clock, that they hold the lock.

    A writer and the reader that takes its place have one owner.
    A caller that has sent its delete has released the lock. A holder whose node was broken by an
    operator hears it from its watch.
    """
    holders = [
        (number, contender)
        for process, number, contender in contenders
        if process.holds(number)
        and contender.node
        and contender.node.name not in world.server.broken
    ]
    downgraded = [contender.policy.spot for _, contender in holders]
    alone = [c for _, c in holders if not c.policy.shared and c not in downgraded]
    if alone and len(holders) > 1:
        yield f"{' and '.join(NAMES[number] for number, _ in holders)} hold at the same time"


def _orphans(world: World) -> Iterator[str]:
    """Yield the nodes of living sessions that nobody will delete."""
    for name, session, _ in world.server.nodes:
        for process in world.processes:
            if process.id != session or process.expired or (name, session) in process.deletes:
                continue
            if any(answer[1:] and _creates(answer[1], name) for answer in process.answers):
                continue
            if any(name.startswith(sweep.prefix) for sweep in process.sweeps):
                continue
            number = NAMES.index(name[3])
            contender, caller = process.contenders[number], process.callers[number]
            known = contender.node is not None and contender.node.name == name
            unsure = contender.state in UNSURE and name.startswith(contender.prefix)
            if not (unsure or (known and (caller.posted or not caller.left))):
                yield f"{NAMES[number]} has forgotten its node {name}"


def _creates(answer: object, name: str) -> bool:
    return getattr(getattr(answer, "node", None), "name", None) == name


def _sleeps(world: World, process: Process, number: int, contender: Machine) -> bool:
    """Whether no request, watch, neighbour or caller will wake a contender."""
    caller = process.callers[number]
    return not (
        not process.connected
        or process.doomed
        or process.expired  # it will notice, and go on
        or caller.posted
        or caller.news is not None
        or (caller.interrupted and not caller.left)
        or any(who == number for who, _ in process.requests)
        or any(who in (number, None) for who, _ in process.answers)
        or _has_watch(world, process, number, contender)
        or _has_neighbour(process, number, contender)
        or (_is_broken(world, contender) and _wakes_at_heartbeat(process, number))
    )


def _is_broken(world: World, contender: Machine) -> bool:
    return contender.node is not None and not world.server.has(contender.node.name)


def _has_watch(world: World, process: Process, number: int, contender: Machine) -> bool:
    """Whether a contender watches the one ahead."""
    watched = contender._watched
    return (
        contender.state in (State.WAITING, State.ASIDE)
        and (watched, number) in process.watchers
        and (process.number, watched) in world.server.watches
    )


def _has_neighbour(process: Process, number: int, contender: Machine) -> bool:
    """Whether a neighbour will tell a contender when it leaves."""
    return contender.state is State.BEHIND and any(
        local.name == contender._watched and local.follower == number
        for local in process.local.nodes.values()
    )


def _wakes_at_heartbeat(process: Process, number: int) -> bool:
    """Whether a contender hears by its watch, or at the next heartbeat, that its node is gone."""
    contender = process.copy().contenders[number]
    state = contender.state
    for effect in contender.apply(e.Renewed()):
        if isinstance(effect, e.Watch):
            contender.apply(e.Watched(effect.name, error=e.Problem.MISSING))
    return contender.state is not state


def _is_unaware(world: World, process: Process, number: int, contender: Machine) -> bool:
    """Whether a holder will never hear that its node is gone."""
    return (
        _is_broken(world, contender)
        and _is_quiet(process)
        and not _wakes_at_heartbeat(process, number)
    )


def _is_deaf(world: World, process: Process, contender: Machine) -> bool:
    """Whether one who is in line, or holds, does not know that somebody has asked it to leave."""
    return (
        contender.revocable
        and contender.state not in (State.BUSY, State.LOST, State.LEFT)
        and contender.standing
        and contender.node is not None
        and contender.node.name in world.server.asked
        and not contender._revoked
        and _is_quiet(process)
    )


def _is_quiet(process: Process) -> bool:
    return (
        process.connected
        and not process.doomed
        and not process.expired
        and not process.requests
        and not process.answers
        and not any(caller.posted or caller.news is not None for caller in process.callers.values())
    )


def _at_rest(world: World, contenders: list[tuple[Process, int, Machine]]) -> Iterator[str]:
    """Yield what is wrong while no message is under way."""
    here = [
        (process, number, contender)
        for process, number, contender in contenders
        if contender.state not in (State.NEW, State.LEFT)
    ]
    if not here:
        yield from _left_overs(world)
        return
    if any(process.callers[number].interrupted for process, number, _ in here):
        return
    done = [process.callers[number] for process, number, _ in here if process.has_answer(number)]
    if len(done) == len(here) or not all(caller.lost for caller in done):
        return  # somebody holds, or is about to leave; who has lost the lock may take its time
    if not any(
        _is_broken(world, contender) and _wakes_at_heartbeat(process, number)
        for process, number, contender in here
    ):
        yield "everybody waits, and nobody holds"


def _left_overs(world: World) -> Iterator[str]:
    if world.server.nodes:
        yield f"all have left, and the node {world.server.nodes[0][0]} is still there"
    if world.server.watches:
        yield f"all have left, and a watch is still there: {min(world.server.watches)}"
    for process in world.processes:
        if process.watchers or process.local.nodes or process.deletes or process.sweeps:
            yield "all have left, and a process still has something registered"
