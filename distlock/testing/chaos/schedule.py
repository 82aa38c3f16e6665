"""Which faults, when, and for how long: a pure function of the seed and the size of the run.

All faults are played like a shuffled pack of cards, so that a run of some minutes sees each kind
and the order is another one with each seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

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
    :ivar nodes: the number of servers that it needs
    :ivar network: whether it needs a network of its own (root)
    """

    shortest: float = 0.0
    longest: float = 0.0
    past_expiry: bool = False
    nodes: int = 1
    network: bool = False


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
#: What comes of these depends on the servers.
OTHERS: Final = {
    "interrupt": Kind(),
    # A one-way black hole: every attempt of the client to reconnect reaches the server, and renews
    # the session there, until the client gives the session up. (The other way round it is "mute".)
    "deaf": Kind(shortest=1.5, longest=2.5, past_expiry=True),
    "server kill": Kind(shortest=0.2, longest=2.0),
    "server pause": Kind(shortest=0.5, longest=5.0),
    "rolling restart": Kind(),
    "quorum loss": Kind(shortest=1.0, longest=2.5, past_expiry=True),
    "leader kill": Kind(shortest=0.5, longest=2.5, nodes=3),
    "partition": Kind(shortest=1.5, longest=2.5, past_expiry=True, nodes=3, network=True),
}
KINDS: Final = {**KEEPS, **LOSES, **OTHERS}


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
    seed: int, seconds: float, *, nodes: int, session_timeout: float, network: bool = False
) -> list[Fault]:
    """Return the schedule of a run.

    :param network: whether links between servers can be cut here
    """
    chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
    possible = [
        name
        for name, kind in KINDS.items()
        if kind.nodes <= nodes and (network or not kind.network)
    ]
    faults: list[Fault] = []
    at = WARM_UP
    pack: list[str] = []
    while True:
        if not pack:
            pack = chance.sample(possible, len(possible))
        name = pack.pop()
        kind = KINDS[name]
        lasts = chance.uniform(kind.shortest, kind.longest)
        if kind.past_expiry:
            lasts += session_timeout
        # Until then the session of whoever it has hit has expired, in all cases.
        over = at + max(lasts, session_timeout + 1 if name in LOSES else 0) + BREATH
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
