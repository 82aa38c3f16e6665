"""A process forks, and so does the simulator: what the child then has is what a child has.

In the child's world the parent goes on, with its session and all that it holds, but takes nothing
more; later it dies. All others have died before.
"""

from __future__ import annotations

import os
import warnings
from functools import partial
from typing import TYPE_CHECKING

from distlock.exceptions import LockLost, NotOwner
from distlock.owner.hold import grant_of

from .process import Process, stream, to_the_end
from .world import Violation

if TYPE_CHECKING:
    from .callers import Caller
    from .faults import Faults
    from .judge import Claim
    from .schedule import Stage


def fork(faults: Faults, parent: Process) -> None:
    """Let a process fork, and look what becomes of its child."""
    if not parent.runs:
        return
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of pytest's threads
        pid = os.fork()
    if not pid:
        try:
            _live(faults, parent)
            found = ""
        except BaseException as error:  # noqa: BLE001 - the parent reads it
            found = str(error) if isinstance(error, Violation) else repr(error)
        os.write(writing, found.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found = pipe.read()
    os.waitpid(pid, 0)
    if found:
        raise Violation(f"in a child of {parent}: {found}")


def _live(faults: Faults, parent: Process) -> None:
    stage, until = faults.stage, faults.until
    world, judge = stage.world, stage.judge
    faults.until = 0.0  # those that have begun end at their time
    for one in stage.processes:
        if one is not parent:
            one.kill()
            judge.forget(one)
    claims = judge.claims_in(parent)
    for thread in parent.threads:
        thread.takes_part = thread.name in ("connection", f"distlock-{parent.alias}-heartbeat")
    child = Process(
        "child",
        stream(stage.random),
        links=stage.links,
        servers=stage.servers,
        conf=stage.conf,
        beside=parent,
        alias=parent.alias,
    )
    stage.processes.append(child)
    for caller in {claim.caller: None for claim in claims if claim.caller.task is None}:
        child.spawn("main", partial(_inherit, claims, caller)).continue_as(caller.thread)
    world.run(world.time + 0.1)
    (newcomer,) = stage.add_callers(child, 1, 0.0, longest=0.0, pace=0.0)
    child.spawn("try", partial(to_the_end, _try(newcomer, claims)))
    world.run(world.time + 0.6)
    _look_for(claims, stage)
    judge.forget(parent)
    parent.kill()
    world.run(max(until, world.time))
    stage.end(newcomer)


def _inherit(claims: list[Claim], caller: Caller) -> None:
    """Go on in the child's copy of a thread that holds locks."""
    for claim in claims:
        if not claim.hold.lost:
            raise Violation(f"{claim} is believed")
    if caller.lock.held:
        raise Violation(f"{caller.lock} is held")
    try:
        caller.lock.__exit__(None, None, None)
    except (NotOwner, LockLost):
        return
    raise Violation(f"{caller.lock} is released")


async def _try(newcomer: Caller, claims: list[Claim]) -> None:
    for claim in claims:
        if not (claim.reads or claim.line.limit):
            got = await newcomer.call(claim.line, 0.0, claim.line.kinds[0])
            if got and not grant_of(claim.hold).lost:
                raise Violation(f"{claim} is taken")


def _look_for(claims: list[Claim], stage: Stage) -> None:
    """Look whether the parent still has what it had."""
    leader = next((one for one in stage.servers if one.role == "leading" and one.serving), None)
    for claim in claims:
        stage.world.here = claim.process
        grant = grant_of(claim.hold)
        if not (grant.lost or grant.left) and leader and claim.hold.path not in leader.tree.nodes:
            raise Violation(f"{claim} is gone")
