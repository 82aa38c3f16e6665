"""One contender, and all that can happen to it: which states can follow which.

`tests.queue.world` has several contenders and one server. Here are one contender, and a server, a
session and a neighbour that do whatever the driver allows (`distlock.queue.machine`): each request
is answered in each way, in order and at any time. So this goes through the whole table, with worn
lines, errors and other recipes.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from distlock.keys.znodes import REVOKE, WORN
from distlock.queue import events as e
from distlock.queue import policies
from distlock.queue.local_line import Line
from distlock.queue.machine import Machine
from distlock.queue.states import State
from tests.queue.world import Process, next_prefix, node_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.queue.policies import Policy

#: A state, an event, and the state after it.
Transition = tuple[State, type, State]
#: An event, or None, and what of the process changes with it.
Happening = tuple[Any, dict[str, Any]]

ERROR = OSError("refused")
MISSING = e.Problem.MISSING
OURS, CURATORS = b'{"v":1}', b"10.0.0.1"
#: The process's other contender: our neighbour, or the writer whose place we take.
OTHER, OUR = 0, 1
OTHERS = ("_c_x1-lock-0000000000", "_c_y1-lock-0000000000", "_c_x1-__READ__0000000000")
LATCH = "latch-0000000000"


def transitions(policy: Policy, depth: int, **options: Any) -> set[Transition]:
    """Return the transitions that a contender of this policy can make in so many steps."""
    found: set[Transition] = set()
    seen = set()
    edge = [beginning(policy, *facts, **options) for facts in product((True, False), repeat=4)]
    for _ in range(depth):
        further = []
        for process in edge:
            for event, changes in _happenings(process):
                then = process.copy()
                for name, value in changes.items():
                    setattr(then, name, value)
                if event is not None:
                    found.add(_apply(then, event))
                key = hash(then.key)
                if key not in seen:
                    seen.add(key)
                    further.append(then)
        edge = further
    return found


def beginning(
    policy: Policy,
    connected: bool = True,
    running: bool = True,
    line_known: bool = True,
    released: bool = False,
    **options: Any,
) -> Process:
    """Return a process with a holder and a contender that has not joined.

    :param line_known: whether the line's own node is watched
    :param released: whether the holder has left the lock for the next one
    """
    process = Process(0, (OTHER, OUR))
    process.connected, process.running = connected, running
    if line_known:
        process.local.lines[""] = Line(1)
    kind = policies.WRITER if policy.spot is not None else policies.MUTEX
    other = Machine(kind, process, process.local, me=OTHER)
    other.state, other.epoch = State.HOLDING, process.epoch
    other.node = node_of(f"_c_A1-{kind.kind}0000000000", 5, process.id)
    if kind.hands_over:
        process.local.enter(other.node, OTHER)
        process.local.nodes["", 0].released = process.epoch if released else None
    contender = Machine(policy, process, process.local, me=OUR, **options)
    contender.new_prefix = partial(next_prefix, contender)
    process.contenders = {OTHER: other, OUR: contender}
    process.bind()
    return process


def _apply(process: Process, event: Any) -> Transition:
    contender = process.contenders[OUR]
    if type(event) is e.Disconnected:
        process.local.clear()
    before = contender.state
    effects = contender.apply(event)
    for effect in effects:
        match effect:
            case e.Unwatch():
                process.watchers -= {(effect.name, OUR)}
            case e.Watch():
                process.watchers |= {(effect.name, OUR)}
                process.requests += (effect,)
            case (
                e.Delete()
                | e.Sweep()
                | e.Grant()
                | e.Busy()
                | e.Refuse()
                | e.Lose()
                | e.Revoke()
                | e.Tell()
            ):
                pass
            case _:
                process.requests += (effect,)
    return before, type(event), contender.state


def _happenings(process: Process) -> Iterator[Happening]:
    contender = process.contenders[OUR]
    state = contender.state
    if state is State.NEW:
        yield e.Join(), {}
        yield e.Join(follows=True), {}
        yield e.Leave(), {}
        return
    if state is State.LEFT:
        return
    yield e.Leave(), {}
    yield from _of_session(process)
    if process.connected and process.requests:
        rest = {"requests": process.requests[1:]}
        for answer, changes in _answers(process, contender, process.requests[0]):
            yield answer, {**rest, **changes}
    for watch in process.watchers:
        for deleted in (True, False):
            yield e.Changed(watch[0], deleted), {"watchers": process.watchers - {watch}}
    if state is State.BEHIND:
        yield e.HandedOver(process.epoch), {}
        yield e.NeighbourLeft(contender._watched, None), {}
    granted = state in (State.HOLDING, State.LOST)
    if granted or state is State.BEHIND:
        for local in process.local.nodes.values():
            if local.follower == OUR:  # also of one that has handed the lock over before
                yield e.NeighbourLeft(local.name, process.epoch), {}
    if granted:
        yield e.GiveUp("max_hold"), {}


def _of_session(process: Process) -> Iterator[Happening]:
    if process.connected:
        gone = {"connected": False, "requests": (), "watchers": frozenset()}
        yield e.Disconnected(), gone
        yield e.Renewed(), {} if process.running else {"running": True, "epoch": 2}
    else:
        yield e.Disconnected(), {}  # it had joined before it could hear of that
        yield e.Connected(), {"connected": True}
        yield e.Connected(), {"connected": True, "id": 2, "running": False}
    yield None, {"running": False}
    yield e.Lapsed(), {}


def _answers(  # noqa: PLR0912 - a case for each request
    process: Process, contender: Machine, request: Any
) -> Iterator[Happening]:
    match request:
        case e.Create():
            for number in (1, WORN) if request.sequential else (0,):
                name = request.name + f"{number:010d}" * request.sequential
                yield e.Created(node_of(name, 10, process.id)), {}
            yield e.Created(None, MISSING), {}
            yield e.Created(None, ERROR), {}
        case e.List(sync=True):
            yield e.Listed((), MISSING), {}
            for names in ((), (f"{contender.prefix}{contender.policy.kind}0000000001",)):
                yield e.Listed(names), {}
        case e.List():
            yield e.Listed((), MISSING), {}
            yield e.Listed((), ERROR), {}
            yield from ((e.Listed(names), {}) for names in _lines(process, contender))
        case e.MakeLine():
            yield e.LineMade(), {}
            yield e.LineMade(ERROR), {}
        case e.WatchLine() | e.ReadLine():
            for read in (e.LineRead(1), e.LineRead(7), e.LineRead(1, 0, False)):
                yield read, {}
            for error in (MISSING, ERROR):
                yield e.LineRead(error=error), {}
        case e.RemoveLine():
            for problem in (None, e.Problem.NOT_EMPTY, MISSING, ERROR):
                yield e.LineRemoved(problem), {}
        case e.Read():
            for data in (OURS, CURATORS):
                yield e.NodeRead(request.name, node_of(request.name, 10, process.id), data), {}
            for error in (MISSING, ERROR):
                yield e.NodeRead(request.name, error=error), {}
        case e.Watch():
            yield e.Watched(request.name, OURS), {}
            yield e.Watched(request.name, REVOKE, 1), {}
            for error in (MISSING, ERROR):
                unset = {"watchers": process.watchers - {(request.name, OUR)}}
                yield e.Watched(request.name, error=error), unset
        case e.Prove():
            yield e.Proved(), {}
            yield e.Proved(), {"running": True, "epoch": 2}
        case _:
            raise AssertionError(request)


def _lines(process: Process, contender: Machine) -> Iterator[tuple[str, ...]]:
    """Yield the names that a list of the line may show."""
    own = () if contender.node is None else (contender.node.name,)
    other = process.contenders[OTHER].node
    assert other is not None
    yield ()
    yield own
    yield LATCH, *own
    yield other.name, *own
    yield OTHERS
    for name in OTHERS:
        yield name, *own
    yield OTHERS[0], OTHERS[1], *own
