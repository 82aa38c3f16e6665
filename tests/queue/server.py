"""The server, which carries requests out, and the driver of each process, which takes answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distlock.keys.limits import MAX_INT
from distlock.keys.znodes import LEASE, REVOKE
from distlock.queue import events as e
from distlock.queue.local_line import Line
from distlock.queue.semaphore import limit_in
from distlock.queue.states import State
from tests.queue.world import NAMES, Process, World, Wrong, node_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlock.queue.machine import Machine

# --- what the driver does -------------------------------------------------------------------------


def deliver(world: World, process: Process, number: int, event: e.Event) -> None:
    """Apply an event to a contender, and carry its effects out.

    Before that, take the offer of the lock back that the contender has, or learn that it was taken.
    """
    contender, caller = process.contenders[number], process.callers[number]
    if contender.state is State.LEFT:
        return
    offers = [offer for offer in process.offers if offer[1] == number]
    if not getattr(contender, "offers_stay", False):  # as one of the mutations has it
        process.offers = process.offers.difference(offers)
    if caller.given is not None:
        process.callers[number] = caller._replace(given=None)
        contender.apply(e.HandedOver(caller.given))
        if type(event) is e.NeighbourLeft:
            return
    before = contender.state
    carry_out(world, process, number, contender.apply(event))
    _check_grant(world, number, contender, before)
    if contender.state is State.BEHIND:
        assert isinstance(contender.before, int)
        process.offers |= {(contender.before, number)}
    elif process.local.lines and not any(map(attending, process.contenders.values())):
        process.local.lines.clear()
        _unwatch_if_unwanted(process, "Line")


def deliver_to_all(world: World, process: Process, event: e.Event) -> None:
    for number, contender in process.contenders.items():
        if contender.state is not State.NEW:
            deliver(world, process, number, event)


def _check_grant(world: World, number: int, contender: Machine, before: State) -> None:
    """Raise if a list was to show that a node is there, and did not."""
    if before in (State.LOOKING, State.PROVING) and contender.state is State.HOLDING:
        node = getattr(contender, "node", None)  # a semaphore's contender has several
        if node is not None and not world.server.has(node.name):
            raise Wrong(f"{NAMES[number]} is granted on a node that is gone")


def attending(contender: Machine) -> bool:
    """Whether a contender has come to the line and not left it."""
    return contender.state not in (State.NEW, State.LEFT)


def carry_out(world: World, process: Process, number: int, effects: Any) -> None:
    told: list[e.Tell] = []
    for request in effects:
        effect = _what(request)
        match effect:
            case e.Grant():
                process.note_grant(world, process.contenders[number])
            case e.Tell():
                told.append(effect)
            case e.Delete() | e.Sweep():
                _delete(process, effect)
            case e.Unwatch():
                process.watchers -= {(watched(effect), number)}
                _unwatch_if_unwanted(process, watched(effect))
            case e.Busy() | e.Lose() | e.Revoke() | e.Refuse(e.Why.BEYOND_LIMIT):
                pass
            case e.Refuse():
                raise Wrong(f"{NAMES[number]} is refused: {effect.why.value}")
            case _:
                if not process.connected:
                    raise Wrong(f"{NAMES[number]} sends {effect} without a connection")
                if type(effect) is e.WatchLine:
                    process.local.lines.setdefault("", Line())
                elif type(effect).__name__.startswith("Watch"):
                    process.watchers |= {(watched(effect), number)}
                process.requests += ((number, request),)
    for tell in told:
        _hand_over(world, process, number, tell)


def _hand_over(world: World, process: Process, number: int, tell: e.Tell) -> None:
    assert isinstance(tell.contender, int)
    if tell.event.epoch is not None and process.contenders[number].state is State.LOST:
        raise Wrong(f"{NAMES[number]} hands over what it has lost")
    deliver(world, process, tell.contender, tell.event)


def watched(effect: Any) -> str:
    """Return the name of what is watched: a node's, ``Line``, ``Limit`` or ``Names``."""
    name: str = getattr(effect, "name", type(effect).__name__.rpartition("atch")[2])
    return name


def _delete(process: Process, effect: e.Delete | e.Sweep) -> None:
    """Add a request that is repeated until it is done or the session is over."""
    if isinstance(effect, e.Sweep):
        process.sweeps += (effect,)
    elif effect.session_id == process.id and (effect.name, process.id) not in process.deletes:
        process.deletes += ((effect.name, process.id),)
    else:
        return
    if process.connected:
        process.requests += ((None, effect),)


def _unwatch_if_unwanted(process: Process, name: str) -> None:
    if process.connected and not any(watched == name for watched, _ in process.watchers):
        process.requests += ((None, e.Unwatch(name)),)


# --- the server -----------------------------------------------------------------------------------


def serve(world: World, process: Process) -> None:
    """Carry the next request of a process out, and answer it."""
    (number, effect), process.requests = process.requests[0], process.requests[1:]
    if process.deposed and _is_write(process, number, effect):
        process.doomed = True
        return
    answer = _server_of(effect)(world, process, effect)
    arrive(world, process, number, answer)


def _is_write(process: Process, number: int | None, effect: Any) -> bool:
    what = _what(effect)
    if isinstance(what, e.List):  # one of the mutations asks for a ``sync``
        assert number is not None
        contender = process.contenders[number]
        machines = getattr(contender, "machines", [contender])  # a semaphore's has several
        return what.sync and not any(getattr(one, "syncs", False) for one in machines)
    return isinstance(what, _WRITES)


_WRITES = (
    e.Create
    | e.MakeLine
    | e.RemoveLine
    | e.Delete
    | e.Sweep
    | e.Prove
    | e.WriteLimit
    | e.MakePermits
)


def _create(world: World, process: Process, effect: e.Create) -> e.Created:
    process.lag = ()
    server = world.server
    if not server.line:
        return e.Created(None, e.Problem.MISSING)
    name = effect.name + f"{server.number:010d}" * effect.sequential
    node = node_of(name, server.zxid + 1, process.id)
    world.server = server._replace(
        zxid=node.token,
        number=min(server.number + 1, MAX_INT),  # ZOOKEEPER-3249
        nodes=(*server.nodes, (name, process.id, node.token)),
    )
    if process.doomed:
        process.unseen += (name,)
    fire(world, name)
    return e.Created(node)


def _list(world: World, process: Process, effect: e.List) -> e.Listed:
    if effect.sync and not process.deposed:
        process.lag = ()
    if not world.server.line:
        return e.Listed((), e.Problem.MISSING)
    # In no order of their creation, as the server does.
    return e.Listed(tuple(sorted([node[0] for node in _seen(world, process)])))


def _seen(world: World, process: Process) -> list[tuple[str, int, int]]:
    """Return the nodes that the server of a process shows."""
    return [node for node in world.server.nodes if node[0] not in process.lag]


def _watch_line(world: World, process: Process, effect: e.WatchLine) -> e.LineRead:
    if not world.server.line:
        return e.LineRead(error=e.Problem.MISSING)
    _watch_by_exists(world, process, effect)
    return e.LineRead(world.server.line)


def _make_line(world: World, _process: Process, _: e.MakeLine) -> e.LineMade:
    server = world.server
    if not server.line:
        world.server = server._replace(line=server.zxid + 1, zxid=server.zxid + 1, number=0)
    return e.LineMade()


def _make_permits(world: World, process: Process, effect: e.MakePermits) -> e.LineMade:
    if not world.server.permits:
        world.server = world.server._replace(permits=True, limit=effect.data)
    return _make_line(world, process, e.MakeLine())


def _read_line(world: World, _process: Process, _: e.ReadLine) -> e.LineRead:
    line = world.server.line
    return e.LineRead(line) if line else e.LineRead(error=e.Problem.MISSING)


def _remove_line(world: World, process: Process, _: e.RemoveLine) -> e.LineRemoved:
    process.lag = ()
    server = world.server
    if server.nodes or not server.line:
        return e.LineRemoved(e.Problem.NOT_EMPTY if server.line else e.Problem.MISSING)
    world.server = server._replace(line=0)
    fire(world, "Line", deleted=True)
    return e.LineRemoved()


def _read(world: World, process: Process, effect: e.Read) -> e.NodeRead:
    for name, session, token in _seen(world, process):
        if name == effect.name:
            return e.NodeRead(name, node_of(name, token, session), b'{"v":1}')
    return e.NodeRead(effect.name, error=e.Problem.MISSING)


def _watch(world: World, process: Process, effect: e.Watch) -> e.Watched:
    if not any(node[0] == effect.name for node in _seen(world, process)):
        return e.Watched(effect.name, error=e.Problem.MISSING)
    return _watch_by_exists(world, process, effect)


def _watch_by_exists(world: World, process: Process, effect: Any) -> e.Watched:
    """Do as a mutation asks: watch a node that may be gone."""
    name = watched(effect)
    watches = world.server.watches | {(process.number, name)}
    world.server = world.server._replace(watches=watches)
    if not world.server.has(name):
        return e.Watched(name, error=e.Problem.MISSING)
    asked = name in world.server.asked
    return e.Watched(name, REVOKE if asked else b'{"v":1}', int(asked))


def _unwatch(world: World, process: Process, effect: e.Unwatch) -> None:
    watches = world.server.watches - {(process.number, effect.name)}
    world.server = world.server._replace(watches=watches)


def _delete_node(world: World, process: Process, effect: e.Delete) -> e.Delete:
    process.lag = ()
    remove(world, effect.name)
    return effect


def _search(world: World, process: Process, effect: e.Sweep) -> tuple[e.Sweep, tuple[str, ...]]:
    if getattr(effect, "synced", True):
        process.lag = ()
    nodes = _seen(world, process)
    return effect, tuple([name for name, *_ in nodes if name.startswith(effect.prefix)])


def _prove(_world: World, process: Process, _: e.Prove) -> e.Proved:
    process.lag = ()
    return e.Proved()


# --- a semaphore's permits ------------------------------------------------------------------------


def _what(one: Any) -> Any:
    """Return a request or an answer without its address at a semaphore."""
    return getattr(one, "what", one)


def _at(world: World, process: Process, at: Any) -> Any:
    """Carry out a request at one of a semaphore's nodes."""
    line = world.server.line
    at_permits = at.where == "leases" or isinstance(at.what, e.ReadLimit)
    missing = at_permits and not world.server.permits and not isinstance(at.what, e.MakePermits)
    if missing:
        world.server = world.server._replace(line=0)
    answer = _server_of(at.what)(world, process, at.what)
    if missing:
        world.server = world.server._replace(line=line)
    if isinstance(answer, e.Listed):
        names = [name for name in answer.names if (LEASE in name) == (at.where == "leases")]
        answer = answer._replace(names=tuple(names))
    return None if answer is None else at._replace(what=answer)


def _read_limit(world: World, process: Process, _: Any) -> e.LimitRead:
    server = world.server
    if not server.line:
        return e.LimitRead(error=e.Problem.MISSING)
    taken = sum(LEASE in name for name, *_ in _seen(world, process))
    return e.LimitRead(server.limit, server.version, taken)


def _watch_limit(world: World, process: Process, effect: e.WatchLimit) -> e.LimitRead:
    if world.server.line:
        _watch_by_exists(world, process, effect)
    return _read_limit(world, process, effect)


def _watch_names(world: World, process: Process, effect: e.WatchNames) -> e.Listed:
    if world.server.line:
        _watch_by_exists(world, process, effect)
    return _list(world, process, e.List())


def _write_limit(world: World, _process: Process, effect: e.WriteLimit) -> None:
    if world.server.line and world.server.version == effect.version:
        set_limit(world, effect.data)


def _read_kept(world: World, _process: Process, _: e.ReadKept) -> e.KeptRead:
    kept = world.server.kept
    return e.KeptRead(kept) if kept else e.KeptRead(error=e.Problem.MISSING)


def set_limit(world: World, data: bytes) -> None:
    """Write a semaphore's limit."""
    server = world.server
    most = max(server.most, limit_in(data)[0] or 0)
    world.server = server._replace(limit=data, version=server.version + 1, most=most)
    fire(world, "Limit")


_SERVES: dict[type, Any] = {
    e.Create: _create,
    e.List: _list,
    e.WatchLine: _watch_line,
    e.MakeLine: _make_line,
    e.ReadLine: _read_line,
    e.RemoveLine: _remove_line,
    e.Read: _read,
    e.Watch: _watch,
    e.Unwatch: _unwatch,
    e.Delete: _delete_node,
    e.Prove: _prove,
    e.ReadLimit: _read_limit,
    e.ReadKept: _read_kept,
    e.MakePermits: _make_permits,
    e.WatchLimit: _watch_limit,
    e.WatchNames: _watch_names,
    e.WriteLimit: _write_limit,
}


def _server_of(effect: Any) -> Any:
    if hasattr(effect, "where"):
        return _at
    if isinstance(effect, e.Sweep):
        return _search
    return _SERVES.get(type(effect), _watch_by_exists)


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
    what = _what(answer)
    match what:
        case e.Delete() | (e.Sweep(), _):
            _is_done(process, answer)
            return
        case e.Changed():
            if answer.name == "Line":
                process.local.lines.clear()
            hearing = sorted(who for name, who in process.watchers if name == answer.name)
            process.watchers -= {(answer.name, who) for who in hearing}
            for who in hearing:
                deliver(world, process, who, answer)
            return
        case e.Watched():
            _settle_watch(world, process, number, what.name, what.error)
        case e.LineRead():
            _settle_line(process, what)
        case e.LimitRead():
            _settle_watch(world, process, number, "Limit", what.error)
        case e.Listed():
            _settle_watch(world, process, number, "Names", what.error)
        case e.Proved() | e.Created(error=None) if not process.expired and not process.running:
            process.running = True
            process.epoch += 1
        case _:
            pass
    if number is None:  # a heartbeat
        deliver_to_all(world, process, e.Renewed())
    else:
        deliver(world, process, number, answer)


def _is_done(process: Process, answer: e.Delete | tuple[e.Sweep, Sequence[str]]) -> None:
    if isinstance(answer, e.Delete):
        process.deletes = tuple(d for d in process.deletes if d != tuple(answer))
        process.forget(answer.name)
    else:
        sweep, names = answer
        process.sweeps = tuple(one for one in process.sweeps if one is not sweep)
        for name in names:
            _delete(process, e.Delete(name, process.id))


def _settle_line(process: Process, read: e.LineRead) -> None:
    if "" not in process.local.lines:
        _unwatch_if_unwanted(process, "Line")
    elif read.error is None:
        process.local.lines[""] = Line(read.token)


def _settle_watch(world: World, process: Process, number: Any, name: str, error: e.Error) -> None:
    """Forget a watch that was not set; take one back that nobody wants any more."""
    if error is not None:
        process.watchers -= {(name, number)}
    elif (process.number, name) in world.server.watches:
        _unwatch_if_unwanted(process, name)


def remove(world: World, *names: str, deleted: bool = True) -> None:
    """Delete nodes, and tell those who watch them."""
    if deleted:
        nodes = tuple(node for node in world.server.nodes if node[0] not in names)
        world.server = world.server._replace(nodes=nodes)
    fire(world, *names, deleted=deleted)


def fire(world: World, *names: str, deleted: bool = False) -> None:
    """Tell those who watch these nodes, or which permits there are."""
    if any(LEASE in name for name in names):
        names = (*names, "Names")
    fired = [pair for pair in world.server.watches if pair[1] in names]
    if fired:
        watches = world.server.watches.difference(fired)
        world.server = world.server._replace(watches=watches)
        for number, name in sorted(fired):
            arrive(world, world.own(number), None, e.Changed(name, deleted))


def describe(what: Any) -> str:
    """Return a short text for a trace."""
    if hasattr(what, "where"):
        return f"{describe(what.what)} at {what.where}"
    if isinstance(what, str):
        kind = what.partition("-")[2].rstrip("0123456789-_")
        number = what[-10:].lstrip("0") or "0"
        return f"{what[3:5]}#{number}" if what[-1].isdigit() else f"{what[3:5]}-{kind}"
    shown = ", ".join(describe(value) if isinstance(value, str) else str(value) for value in what)
    return f"{type(what).__name__}({shown})"
