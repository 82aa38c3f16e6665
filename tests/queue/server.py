"""The server, which carries requests out, and the driver of each process, which takes answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlock.queue import events as e
from distlock.queue.states import State
from tests.queue.world import NAMES, Process, World, Wrong, name_of

if TYPE_CHECKING:
    from distlock.queue.machine import Machine


# --- what the driver does -------------------------------------------------------------------------


def deliver(world: World, process: Process, number: int, event: e.Event) -> None:
    """Apply an event to a contender, and carry its effects out."""
    carry_out(world, process, number, process.contenders[number].apply(event))


def deliver_to_all(world: World, process: Process, event: e.Event) -> None:
    for number, contender in process.contenders.items():
        if contender.state is not State.NEW:
            deliver(world, process, number, event)


def carry_out(world: World, process: Process, number: int, effects: Any) -> None:
    told: list[e.Tell] = []
    for effect in effects:
        match effect:
            case e.Grant():
                _note_grant(world, process.contenders[number])
            case e.Tell():
                told.append(effect)
            case e.Delete():
                _delete(process, effect)
            case e.Unwatch():
                process.watchers -= {(effect.name, number)}
                _unwatch_if_unwanted(process, effect.name)
            case e.Busy() | e.Lose():
                pass
            case e.Refuse():
                raise Wrong(f"{NAMES[number]} is refused: {effect.why.value}")
            case _:
                if not process.connected:
                    raise Wrong(f"{NAMES[number]} sends {effect} without a connection")
                if type(effect).__name__.startswith("Watch"):
                    process.watchers |= {(effect.name, number)}
                process.requests += ((number, effect),)
    for tell in told:
        assert isinstance(tell.contender, int)
        deliver(world, process, tell.contender, tell.event)


def _note_grant(world: World, contender: Machine) -> None:
    node, server = contender.node, world.server
    assert node is not None
    if not contender.valid:
        raise Wrong(f"{name_of(contender)} is granted what is lost already")
    if any(name == node.name and owner != contender.session.id for name, owner, _ in server.nodes):
        raise Wrong(f"{name_of(contender)} is granted on a node of an earlier session")
    if node.name in server.broken or contender.policy.spot is not None:
        return  # the watch on it says so in a moment; or the token is the writer's
    shared = contender.policy.shared
    if node.token <= (server.alone if shared else max(server.alone, server.together)):
        raise Wrong(f"the token {node.token} is granted after {server.alone}")
    if shared:
        world.server = server._replace(together=max(server.together, node.token))
    else:
        world.server = server._replace(alone=node.token)


def _delete(process: Process, effect: e.Delete) -> None:
    delete = effect.name, effect.session_id
    if effect.session_id == process.id and delete not in process.deletes:
        process.deletes += (delete,)
        if process.connected:
            process.requests += ((None, effect),)


def _unwatch_if_unwanted(process: Process, name: str) -> None:
    if process.connected and not any(watched == name for watched, _ in process.watchers):
        process.requests += ((None, e.Unwatch(name)),)


# --- the server -----------------------------------------------------------------------------------


def serve(world: World, process: Process) -> None:
    """Carry the next request of a process out, and answer it."""
    (number, effect), process.requests = process.requests[0], process.requests[1:]
    answer = _SERVES.get(type(effect), _watch_by_exists)(world, process, effect)
    arrive(world, process, number, answer)


def _create(world: World, process: Process, effect: e.Create) -> e.Created:
    process.lag = ()
    server = world.server
    if not server.line:
        return e.Created(None, e.Problem.MISSING)
    name = effect.name + f"{server.number:010d}" * effect.sequential
    node = e.Node(name, server.zxid + 1, process.id)
    world.server = server._replace(
        zxid=node.token,
        number=server.number + 1,
        nodes=(*server.nodes, (name, process.id, node.token)),
    )
    if process.doomed:
        process.unseen += (name,)
    return e.Created(node)


def _list(world: World, process: Process, effect: e.List) -> e.Listed:
    if effect.sync:
        process.lag = ()
    if not world.server.line:
        return e.Listed((), e.Problem.MISSING, effect.sync)
    return e.Listed(tuple([node[0] for node in _seen(world, process)]), None, effect.sync)


def _seen(world: World, process: Process) -> list[tuple[str, int, int]]:
    """Return the nodes that the server of a process shows."""
    return [node for node in world.server.nodes if node[0] not in process.lag]


def _read_line(world: World, _process: Process, _: e.ReadLine) -> e.LineRead:
    return e.LineRead(world.server.line, error=None if world.server.line else e.Problem.MISSING)


def _make_line(world: World, _process: Process, _: e.MakeLine) -> e.LineMade:
    server = world.server
    if not server.line:
        world.server = server._replace(line=server.zxid + 1, zxid=server.zxid + 1, number=0)
    return e.LineMade()


def _read(world: World, process: Process, effect: e.Read) -> e.NodeRead:
    for name, session, token in _seen(world, process):
        if name == effect.name:
            return e.NodeRead(name, e.Node(name, token, session), b'{"v":1}')
    return e.NodeRead(effect.name, error=e.Problem.MISSING)


def _watch(world: World, process: Process, effect: e.Watch) -> e.Watched:
    if not any(node[0] == effect.name for node in _seen(world, process)):
        return e.Watched(effect.name, error=e.Problem.MISSING)
    return _watch_by_exists(world, process, effect)._replace(error=None)


def _watch_by_exists(world: World, process: Process, effect: Any) -> e.Watched:
    """Do as a mutation asks: watch a node that may be gone."""
    watches = world.server.watches | {(process.number, effect.name)}
    world.server = world.server._replace(watches=watches)
    return e.Watched(
        effect.name, error=None if world.server.has(effect.name) else e.Problem.MISSING
    )


def _unwatch(world: World, process: Process, effect: e.Unwatch) -> None:
    watches = world.server.watches - {(process.number, effect.name)}
    world.server = world.server._replace(watches=watches)


def _delete_node(world: World, process: Process, effect: e.Delete) -> e.Delete:
    process.lag = ()
    remove(world, effect.name)
    return effect


def _prove(_world: World, process: Process, _: e.Prove) -> e.Proved:
    process.lag = ()
    return e.Proved()


_SERVES: dict[type, Any] = {
    e.Create: _create,
    e.List: _list,
    e.ReadLine: _read_line,
    e.MakeLine: _make_line,
    e.Read: _read,
    e.Watch: _watch,
    e.Unwatch: _unwatch,
    e.Delete: _delete_node,
    e.Prove: _prove,
}


def arrive(world: World, process: Process, number: int | None, answer: Any) -> None:
    """Let an answer or an event arrive, now or later."""
    if answer is None or process.doomed:
        return
    if world.slow:
        process.answers += ((number, answer),)
    else:
        take(world, process, number, answer)


def take(world: World, process: Process, number: int | None, answer: Any) -> None:
    """Let a process take an answer."""
    match answer:
        case e.Delete():
            process.deletes = tuple(d for d in process.deletes if d != tuple(answer))
            process.local.forget(e.Node(answer.name, 0, answer.session_id))
            return
        case e.Changed():
            hearing = sorted(who for name, who in process.watchers if name == answer.name)
            process.watchers -= {(answer.name, who) for who in hearing}
            for who in hearing:
                deliver(world, process, who, answer)
            return
        case e.Watched():
            if answer.error is not None:
                process.watchers -= {(answer.name, number)}
            else:
                _unwatch_if_unwanted(process, answer.name)
        case e.Proved() | e.Created(error=None) if not process.expired and not process.running:
            process.running = True
            process.epoch += 1
        case _:
            pass
    if number is None:  # a heartbeat
        deliver_to_all(world, process, e.Renewed())
    else:
        deliver(world, process, number, answer)


def remove(world: World, *names: str, deleted: bool = True) -> None:
    """Delete nodes, and tell those who watch them."""
    if deleted:
        nodes = tuple(node for node in world.server.nodes if node[0] not in names)
        world.server = world.server._replace(nodes=nodes)
    fired = [pair for pair in world.server.watches if pair[1] in names]
    if fired:
        watches = world.server.watches.difference(fired)
        world.server = world.server._replace(watches=watches)
        for number, name in sorted(fired):
            arrive(world, world.own(number), None, e.Changed(name, deleted))


def describe(what: Any) -> str:
    """Return a short text for a trace."""
    if isinstance(what, str):
        kind = what.partition("-")[2].rstrip("0123456789-_")
        number = what[-10:].lstrip("0") or "0"
        return f"{what[3:5]}#{number}" if what[-1].isdigit() else f"{what[3:5]}-{kind}"
    shown = ", ".join(describe(value) if isinstance(value, str) else str(value) for value in what)
    return f"{type(what).__name__}({shown})"
