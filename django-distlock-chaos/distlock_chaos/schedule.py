"""Which faults, when, and for how long: a pure function of the seed and the size of the run.

All faults are played like a shuffled pack of cards, so that a run of some minutes sees each kind
and the order is another one with each seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

#: How many seconds the workers have to themselves before the first fault.
WARM_UP = 2.0
#: How long it takes until everybody works again after a fault that costs nobody a session.
BREATH = 2.0
#: How many of a hundred faults are aimed at a holder.
AIMED = 85


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of fault.

    :ivar shortest: how long it lasts at least, in seconds
    :ivar longest: how long it lasts at most
    :ivar past_expiry: both are counted from the session timeout on
    :ivar of_session: both are parts of the session timeout instead of seconds
    :ivar settles: how long it takes afterwards until everybody works again, in seconds
    :ivar nodes: the number of servers that it needs
    :ivar network: whether it needs a network of its own (root)
    :ivar named: whether it comes only in runs that name it
    :ivar recipes: the recipes that it is for; empty for all
    :ivar restarts: whether a server starts again, after which Redis grants nothing for a while
    :ivar least_session: the shortest session timeout that it works with, in seconds
    :ivar redis: whether it can be brought about with Redis
    :ivar zookeeper: whether it can be brought about with ZooKeeper
    """

    shortest: float = 0.0
    longest: float = 0.0
    past_expiry: bool = False
    of_session: bool = False
    settles: float = BREATH
    nodes: int = 1
    network: bool = False
    named: bool = False
    recipes: frozenset[str] = frozenset()
    restarts: bool = False
    least_session: float = 0.0
    redis: bool = True
    zookeeper: bool = True


#: The recipes with one queue of contenders under the key.
_QUEUED: Final = frozenset({"distlock", "kazoo", "rwlock", "multilock"})

#: The holder's session outlives these faults, and its hold with it.
KEEPS: Final = {
    "pause": Kind(shortest=0.2, longest=0.9),
    "cut": Kind(shortest=0.2, longest=0.7),
    "fork": Kind(),
}
#: The holder's session does not outlive these: the next in line has the lock soon afterwards.
LOSES: Final = {
    "stop": Kind(shortest=1.5, longest=2.5, past_expiry=True),
    "black hole": Kind(shortest=1.5, longest=2.5, past_expiry=True),
    "black hole with traffic": Kind(shortest=1.5, longest=2.5, past_expiry=True),
    "mute": Kind(shortest=1.5, longest=2.5, past_expiry=True),
    "long cut": Kind(shortest=1.5, longest=2.5, past_expiry=True),
    "kill": Kind(shortest=0.3, longest=0.6),
    "break": Kind(),
}
#: The effect of these depends on the servers.
OTHERS: Final = {
    "interrupt": Kind(),
    # A one-way black hole: every attempt of the client to reconnect reaches the server, and renews
    # the session there, until the client gives the session up. (The other way round it is "mute".)
    "deaf": Kind(shortest=1.5, longest=2.5, past_expiry=True),
    "server kill": Kind(shortest=0.2, longest=2.0, restarts=True),
    "server pause": Kind(shortest=0.5, longest=5.0),
    "rolling restart": Kind(restarts=True),
    "quorum loss": Kind(shortest=1.0, longest=2.5, past_expiry=True, restarts=True),
    # ZooKeeper closes the former connection of a session. Redis goes on carrying out what arrives.
    "late bytes": Kind(shortest=0.5, longest=1.0, of_session=True, zookeeper=False),
    "flush": Kind(restarts=True, zookeeper=False),
    # It needs a server whose clock can be set, and this a C compiler.
    "server clock": Kind(shortest=1.5, longest=2.5, past_expiry=True, named=True, zookeeper=False),
    "leader kill": Kind(shortest=0.5, longest=2.5, nodes=3, redis=False),
    "partition": Kind(
        shortest=1.5, longest=2.5, past_expiry=True, nodes=3, network=True, redis=False
    ),
    # One of them lets the server grant nothing for a while.
    "refusals": Kind(shortest=0.5, longest=1.5, restarts=True, zookeeper=False),
    "failover": Kind(shortest=0.5, longest=2.5, nodes=3, restarts=True, zookeeper=False),
}
#: Each of these plays a whole scene, on a key of its own where it needs one; see `scenes`.
SCENES: Final = {
    "line begun anew": Kind(shortest=1.0, longest=1.0, recipes=_QUEUED),
    # A hold ends after two thirds of a session timeout, and its session may go on.
    "long pause": Kind(shortest=0.5, longest=1.0, of_session=True, recipes=_QUEUED),
    "leader pause": Kind(shortest=0.5, longest=0.8, of_session=True, nodes=3, redis=False),
    "frozen leader": Kind(
        shortest=8.0, longest=8.0, past_expiry=True, nodes=3, recipes=_QUEUED, redis=False
    ),
    "leader partition": Kind(
        shortest=8.0,
        longest=8.0,
        past_expiry=True,
        nodes=3,
        network=True,
        recipes=_QUEUED,
        redis=False,
    ),
    "late answer": Kind(
        shortest=0.45,
        longest=0.55,
        of_session=True,
        settles=15.0,
        nodes=3,
        recipes=_QUEUED,
        redis=False,
    ),
    "late acquire": Kind(
        shortest=0.3,
        longest=0.6,
        of_session=True,
        settles=10.0,
        recipes=_QUEUED,
        zookeeper=False,
    ),
    "demoted primary": Kind(
        shortest=0.0,
        longest=2.0,
        of_session=True,
        nodes=3,
        recipes=_QUEUED,
        restarts=True,
        zookeeper=False,
    ),
    "undone break": Kind(
        shortest=0.25,
        longest=0.5,
        of_session=True,
        settles=5.0,
        nodes=3,
        recipes=_QUEUED,
        restarts=True,
        zookeeper=False,
    ),
    # Until another leader is elected, none of the former one's sessions may end.
    "lost reply": Kind(
        settles=25.0,
        nodes=3,
        named=True,
        recipes=_QUEUED,
        least_session=15.0,
        redis=False,
    ),
    # It changes what the servers grant: to sessions that begin meanwhile, for good.
    "longer timeouts": Kind(
        shortest=3.0,
        longest=3.0,
        of_session=True,
        settles=20.0,
        nodes=3,
        named=True,
        recipes=_QUEUED,
        redis=False,
    ),
    # Followers prolong a leader that they do not hear, so without STRICT there may be two holders.
    "mute leader": Kind(
        shortest=8.0,
        longest=8.0,
        past_expiry=True,
        nodes=3,
        network=True,
        named=True,
        recipes=_QUEUED,
        redis=False,
    ),
    # It breaks ZooKeeper's own promise to keep what it has acknowledged.
    "replaced server": Kind(shortest=0.2, longest=2.0, settles=11.0, named=True, restarts=True),
    # It needs servers whose clocks can be set, and these a Java compiler.
    "clock step": Kind(
        shortest=2.0, longest=2.0, named=True, recipes=frozenset({"lease"}), redis=False
    ),
}
KINDS: Final = {**KEEPS, **LOSES, **OTHERS, **SCENES}
#: Afterwards each process gets a lock again soon.
RETURNS: Final = frozenset({"replaced server", "failover", "demoted primary"})
#: Every session outlives these faults, whether or not every hold does.
KEEPS_SESSIONS: Final = frozenset(KEEPS) | {"interrupt", "break", "line begun anew", "leader pause"}


#: Servers and links are in order all through these faults.
HARMLESS: Final = frozenset({"fork", "break", "line begun anew"})


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault of a schedule.

    :ivar kind: a key of `KINDS`
    :ivar at: when it begins, in seconds from the start of the workers
    :ivar lasts: for how many seconds
    :ivar aimed: at a holder, or at anybody
    :ivar pick: a number below 1 that decides whatever is left to chance
    """

    kind: str
    at: float
    lasts: float
    aimed: bool
    pick: float


def plan(
    seed: int,
    seconds: float,
    *,
    nodes: int,
    session_timeout: float,
    network: bool = False,
    only: Collection[str] = (),
    recipe: str = "distlock",
    redis: bool = False,
) -> list[Fault]:
    """Return the schedule of a run.

    :param network: whether links between servers can be cut here
    :param only: the kinds of faults to choose from; by default all but those that must be named
    :param redis: whether the servers are Redis
    :raises ValueError: `only` names a fault that does not exist, or cannot be brought about here
    """
    for name in only:
        _require(
            name,
            nodes=nodes,
            session_timeout=session_timeout,
            network=network,
            recipe=recipe,
            redis=redis,
        )
    chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
    possible = [
        name
        for name, kind in KINDS.items()
        if (name in only if only else not kind.named)
        and kind.nodes <= nodes
        and (network or not kind.network)
        and (recipe in kind.recipes or not kind.recipes)
        and (kind.redis if redis else kind.zookeeper)
    ]
    single = [name for name in possible if name not in SCENES]
    scenes = [name for name in possible if name in SCENES]
    scene_chance = random.Random(f"scenes {seed}")  # noqa: S311 - as above
    faults: list[Fault] = []
    at = WARM_UP
    pack: list[str] = []
    while True:
        if not pack:
            # The scenes come last, and by another chance: so the schedules of seeds that were used
            # before there were scenes begin as they did.
            pack = scene_chance.sample(scenes, len(scenes)) + chance.sample(single, len(single))
        name = pack.pop()
        kind = KINDS[name]
        lasts = chance.uniform(kind.shortest, kind.longest)
        if kind.of_session:
            lasts *= session_timeout
        if kind.past_expiry:
            lasts += session_timeout
        # Until then the session of whoever it has hit has expired, in all cases.
        over = at + max(lasts, session_timeout + 1 if name in LOSES else 0) + kind.settles
        if redis and kind.restarts:
            over += session_timeout
        if over > seconds:
            return faults
        aimed = chance.randrange(100) < AIMED
        faults.append(
            Fault(
                kind=name,
                at=round(at, 3),
                lasts=round(lasts, 3),
                aimed=aimed,
                pick=round(chance.random(), 6),
            )
        )
        at = over


def _require(
    name: str, *, nodes: int, session_timeout: float, network: bool, recipe: str, redis: bool
) -> None:
    kind = KINDS.get(name)
    if kind is None:
        raise ValueError(f"There is no fault {name!r}. Choose from: {', '.join(KINDS)}.")
    if redis and not kind.redis:
        raise ValueError(f"The fault {name!r} is one of ZooKeeper's servers.")
    if not redis and not kind.zookeeper:
        raise ValueError(f"The fault {name!r} is one of Redis.")
    if kind.nodes > nodes:
        raise ValueError(f"The fault {name!r} needs {kind.nodes} servers: give --nodes 3.")
    if session_timeout < kind.least_session:
        least = f"{kind.least_session:g}"
        raise ValueError(f"The fault {name!r} needs long sessions: give --session-timeout {least}.")
    if kind.recipes and recipe not in kind.recipes:
        recipes = ", ".join(sorted(kind.recipes))
        raise ValueError(f"The fault {name!r} is for these recipes only: {recipes}.")
    if kind.network and not network:
        raise ValueError(
            f"The fault {name!r} cuts links between servers, which needs Linux, root, and the "
            "programs ip, nft and ss (Debian: iproute2, nftables)."
        )
