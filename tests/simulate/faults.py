"""What breaks, and when: at a time, or at the worst moment of a holder.

One server at a time breaks, and the next one when the leader has heard from the followers again:
docs/how-to/production.md names what two faults at once can do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from .forks import fork
from .server import TICK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from random import Random

    from .process import Process
    from .schedule import Stage

#: What a fault may wait for: of a process, with how much of the time it is chosen.
MOMENTS: Final = {
    "grant": 6,
    "release": 2,
    "create sent": 3,
    "sync sent": 3,
    "answer to create": 5,
    "answer to list": 2,
    "answer to get": 2,
    "answer to sync": 5,
    "answer to multi": 2,
    "answer to delete": 2,
    "connected": 2,
    "grant in a young line": 2,
    "sync answered": 2,
    "multi answered": 2,
    "holder's sync answered": 3,
}


@dataclass(frozen=True)
class Fault:
    """One fault.

    :ivar kind: a method of `Faults`
    :ivar at: when it is due, in seconds; with `moment`, from when on it waits for that
    :ivar who: chooses the process, the server or the caller; ignored if `moment` names the process
    :ivar seconds: how long it lasts
    :ivar more: another number, from 0 to 1
    """

    kind: str
    at: float
    moment: str = ""
    who: int = 0
    seconds: float = 0.0
    more: float = 0.0
    #: All faults with this number hit the same process.
    chain: int = 0
    #: Whether another one with this number must have happened before.
    after: bool = False

    def __str__(self) -> str:
        when = (
            f"from {self.at:.2f} s on at {self.moment!r}" if self.moment else f"at {self.at:.2f} s"
        )
        return f"{self.kind} {when}, for {self.seconds:.2f} s (who {self.who}, {self.more:.2f})"


def drawn(random: Random, timeout: float, until: float, *, servers: int) -> list[Fault]:
    """Return the faults of one schedule."""
    found: list[Fault] = []
    for _ in range(random.choice((0, 1, 2, 3, 4, 6, 8))):
        at = random.uniform(1.0, until)
        kind = random.choices(list(KINDS), list(KINDS.values()))[0]
        moment = ""
        if random.random() < 0.6:
            moment = random.choices(list(MOMENTS), list(MOMENTS.values()))[0]
        found.append(one(random, kind, at, moment, timeout))
        if random.random() < 0.35:  # what follows hits the same one at the next moment
            second = random.choice(("freeze", "apart", "cut", "mute", "stop", "crash", "reset"))
            moment = random.choice(("answer to sync", "answer to multi", "grant", "connected"))
            found.append(one(random, second, at + random.random() * timeout, moment, timeout))
    if servers > 1 and random.random() < 0.4:
        scene = random.choice(SCENES)
        at = random.uniform(1.0, until / 2)
        found += scene(random, at, timeout)
    return sorted(found, key=lambda fault: fault.at)


def one(random: Random, kind: str, at: float, moment: str, timeout: float) -> Fault:
    """Return a fault with some numbers."""
    seconds = random.choice((0.05, 0.3, 0.7, 1.0, 1.4, 2.0)) * random.uniform(0.5, 1.2) * timeout
    return Fault(kind, at, moment, random.randrange(12), seconds, random.random())


def _late_answer(random: Random, at: float, timeout: float) -> list[Fault]:
    """A holder stands still after a heartbeat; its server fails at the answer to the next one."""
    asked = random.choice(("multi", "multi", "sync", "create"))
    moment = f"{asked} answered"
    seconds = timeout * random.uniform(0.3, 0.7)
    return [
        Fault("stop", at, "holder's sync answered", 0, seconds, chain=1),
        # Who 1 is its own server.
        Fault("freeze", at + 0.1, f"answer to {asked}", 1, 1.5 * timeout, chain=1, after=True),
        Fault("cut", at + 0.1, moment, 0, 1.2 * timeout, 0.9, chain=1, after=True),
    ]


def _deposed_with_holder(random: Random, at: float, timeout: float) -> list[Fault]:
    """A holder and the leader, to which it may be connected, stand still for the same time."""
    seconds = timeout / 3 + random.uniform(3, 6) * TICK
    moment = random.choice(("grant", "holder's sync answered", "release"))
    stop = Fault("stop", at, moment, 0, seconds, chain=2)
    return [Fault("freeze", at, moment, 0, seconds - 0.02, chain=2), stop]


def _visitor(random: Random, at: float, _timeout: float) -> list[Fault]:
    return [Fault("visitor", at, "", 0, 0.0, random.random())]


def _longer_and_cut(random: Random, at: float, timeout: float) -> list[Fault]:
    """Servers that grant longer timeouts come; then a holder is cut off, and the leader changes."""
    later = at + random.uniform(3.5, 6.0)
    return [
        Fault("longer", at, "", random.choice((0, 1)), 0.2, 0.55, chain=3),
        Fault("cut", later, random.choice(("", "holder's sync answered")), 0, 4 * timeout, 0.55),
        Fault("crash", later + 0.1, "", 0, 0.2),
    ]


def _wiped_young(random: Random, at: float, _timeout: float) -> list[Fault]:
    """A line that has just begun is removed, again and again."""
    return [
        Fault("wipe", at * number / 10, "grant in a young line", random.randrange(12))
        for number in range(8)
    ]


def _given_up(random: Random, at: float, timeout: float) -> list[Fault]:
    """A waiter hears nothing for so long that it begins another session; the old one lives on."""
    seconds = timeout * random.uniform(1.5, 2.5)
    return [Fault("mute", at / 2, "answer to get", 0, seconds, 0.9)]


def _clock_set(random: Random, at: float, _timeout: float) -> list[Fault]:
    """The time of day is set while somebody has a lease, for which others wait."""
    return [Fault("servers_clock", at, "grant", 0, 0.0, random.random()) for _ in range(3)]


SCENES: Final = (
    _clock_set,
    _late_answer,
    _late_answer,
    _deposed_with_holder,
    _visitor,
    _longer_and_cut,
    _wiped_young,
    _given_up,
)

#: How often each kind is chosen.
KINDS: Final = {
    "stop": 8,
    "kill": 2,
    "fork": 2,
    "cut": 5,
    "mute": 4,
    "deafen": 2,
    "reset": 3,
    "slow": 2,
    "freeze": 5,
    "crash": 2,
    "longer": 1,
    "apart": 5,
    "half_apart": 2,
    "slow_servers": 1,
    "smash": 2,
    "wipe": 2,
    "tear": 4,
    "clock": 1,
    "servers_clock": 1,
}


class Faults:
    """Lets faults happen on a stage."""

    def __init__(self, stage: Stage, faults: list[Fault], until: float) -> None:
        self.stage = stage
        self.world = stage.world
        self.until = until
        self._armed: list[Fault] = []
        #: The processes that chains of faults have hit.
        self._hit: dict[int, Process] = {}
        #: Until when no other server may break.
        self._servers_until = 0.0
        #: Until when something but an operator disturbs a process.
        self._disturbed_until = 0.0
        for fault in faults:
            if fault.moment:
                self.world.after(fault.at, self._armed.append, fault)
            else:
                self.world.after(fault.at, self._begin, fault, None)
        self.world.happened = self._happened

    def _happened(self, moment: str, process: Any) -> None:
        if self._armed and moment == "sync answered":
            holder = self.stage.judge.holder()
            if holder is not None and holder.process is process:
                self._happened("holder's sync answered", process)
        for fault in self._armed:
            hit = self._hit.get(fault.chain, None if fault.after else process)
            if fault.moment == moment and hit is process and self.world.time < self.until:
                self._armed.remove(fault)
                self._begin(fault, process)
                return

    def _begin(self, fault: Fault, process: Process | None) -> None:
        stage = self.stage
        if self.world.time >= self.until:
            return
        if process is None:
            process = self._hit.get(fault.chain)
        if process is None or process.dead:
            holder = stage.judge.holder() if fault.more < 0.6 else None
            living = [one for one in stage.processes if not one.dead]
            if not living:
                return
            process = holder.process if holder is not None else living[fault.who % len(living)]
        stage.judge.faultless = False
        if fault.chain:
            self._hit[fault.chain] = process
        self.world.say("fault", fault.kind, "at", process)
        if fault.kind not in ("smash", "wipe"):
            over = self.world.time + fault.seconds + 2.5 * TICK
            self._disturbed_until = max(self._disturbed_until, over)
        end = getattr(self, f"_{fault.kind}")(fault, process)
        if end is not None:
            seconds = max(min(fault.seconds, self.until - self.world.time), 0.01)
            self.world.after(seconds, end)

    def _blocked(self, *links: tuple[Any, Any]) -> Callable[[], None]:
        for link in links:
            self.stage.links.block(*link)
        return partial(_each, self.stage.links.unblock, links)

    # --- of a process ----------------------------------------------------------------------------

    def _stop(self, fault: Fault, process: Process) -> Callable[[], None] | None:
        if process.stopped:
            return None
        process.stop()

        def go_on() -> None:
            process.go_on()
            self.stage.judge.look()

        return go_on

    def _kill(self, fault: Fault, process: Process) -> Callable[[], None]:
        process.kill()
        self.stage.judge.forget(process)
        return lambda: _ignore(self.stage.add_process())

    def _fork(self, fault: Fault, process: Process) -> None:
        self.world.after(0, fork, self, process)

    def _tear(self, fault: Fault, process: Process) -> None:
        callers = [one for one in self.stage.judge.callers if one.process is process and one.calls]
        if callers:
            callers[fault.who % len(callers)].tear()

    def _clock(self, fault: Fault, process: Process) -> None:
        process.wall += (fault.more - 0.5) * 1000

    def _cut(self, fault: Fault, process: Process) -> Callable[[], None]:
        """Cut it off from its server, or from all."""
        servers = self._servers_of(fault, process)
        both = [((process, one), (one, process)) for one in servers]
        return self._blocked(*[link for pair in both for link in pair])

    def _mute(self, fault: Fault, process: Process) -> Callable[[], None]:
        return self._blocked(*[(one, process) for one in self._servers_of(fault, process)])

    def _deafen(self, fault: Fault, process: Process) -> Callable[[], None]:
        return self._blocked(*[(process, one) for one in self._servers_of(fault, process)])

    def _reset(self, fault: Fault, process: Process) -> None:
        server = process.server
        if server is not None:
            self.stage.links.reset(process, server)

    def _slow(self, fault: Fault, process: Process) -> Callable[[], None]:
        links = self.stage.links
        pairs: list[tuple[Any, Any]] = [
            pair for one in self.stage.servers for pair in ((process, one), (one, process))
        ]
        for pair in pairs:
            links.slow_down(*pair, seconds=fault.more**2 * self.stage.timeout / 2)
        return partial(_each, partial(links.slow_down, seconds=0.0), pairs)

    def _servers_of(self, fault: Fault, process: Process) -> list[Any]:
        server = process.server
        return [server] if fault.more < 0.5 and server is not None else self.stage.servers

    def _cut_from_running(self, fault: Fault, process: Process) -> Callable[[], None]:
        """Cut it off from the servers that do not stand still."""
        running = [one for one in self.stage.servers if not one.stopped]
        both = [((process, one), (one, process)) for one in running]
        return self._blocked(*[link for pair in both for link in pair])

    def _visitor(self, fault: Fault, process: Process) -> None:
        if self.world.time >= self._servers_until and len(self.stage.servers) > 1:
            self._servers_until = self.until
            self._play(self._visit())

    def _play(self, scene: Iterator[None]) -> None:
        for _ in scene:
            self.world.after(0.02, self._play, scene)
            return

    def _visit(self) -> Iterator[None]:
        """Let a newcomer ask a deposed leader for a node whose reply was lost.

        The leader stands still, and another one is elected. The newcomer, which has seen nothing of
        that one's, makes its node there, and loses the reply and the connection. Then there is only
        the old leader, which goes on.
        """
        servers = self.stage.servers
        leader = next((one for one in servers if one.role == "leading" and one.serving), None)
        if leader is None:
            return
        visitor = self.stage.add_process(callers=0)
        while not visitor.session.connected:
            yield
        leader.stop()
        for _ in range(500):
            elected = [one for one in servers if one.role == "leading" and one.serving]
            if visitor.session.connected and elected not in ([leader], []):
                break
            yield
        self._armed.append(Fault("cut_from_running", 0.0, "answer to create", 0, 6 * TICK, chain=9))
        self._hit[9] = visitor
        self.stage.add_callers(visitor, 1, self.world.time + 0.1, pace=0.0)
        for _ in range(300):
            if visitor.server is leader:
                break
            yield
        leader.go_on()

    # --- of a server -----------------------------------------------------------------------------

    def _server(self, fault: Fault, process: Process, seconds: float) -> Any:
        """Choose a server that may break: its own, the leader, or any; None if none may."""
        stage, time = self.stage, self.world.time
        if time < self._servers_until:
            return None
        leader = next((one for one in stage.servers if one.role == "leading"), None)
        server = (
            leader,
            process.server,
            stage.servers[fault.who % len(stage.servers)],
        )[fault.who % 3]
        if server is None or server.dead or server.stopped:
            return None
        end = time + min(seconds, max(self.until - time, 0.0))
        self._servers_until = end + 2.5 * TICK
        return server

    def _freeze(self, fault: Fault, process: Process) -> Callable[[], None] | None:
        server = self._server(fault, process, fault.seconds)
        if server is None:
            return None
        server.stop()
        return server.go_on  # type: ignore[no-any-return]

    def _servers_clock(self, fault: Fault, process: Process) -> None:
        """Set the time of day of all servers, most often forwards."""
        self.stage.judge.clock_set_at = self.world.time
        for server in self.stage.servers:
            server.wall += (2 * fault.more - 0.5) * self.stage.timeout

    def _crash(self, fault: Fault, process: Process) -> Callable[[], None] | None:
        server = self._server(fault, process, fault.seconds)
        if server is None:
            return None
        server.crash()
        return server.begin  # type: ignore[no-any-return]

    def _longer(self, fault: Fault, process: Process) -> Callable[[], None] | None:
        """Start a server again; from now on all grant longer timeouts to new connections."""
        server = self._server(fault, process, fault.seconds)
        if server is None:
            return None
        server.crash()
        for one in self.stage.servers:
            one.least = int(4 * self.stage.timeout / TICK)
        return server.begin  # type: ignore[no-any-return]

    def _apart(self, fault: Fault, process: Process) -> Callable[[], None] | None:
        """Cut a server off from the others."""
        server = self._server(fault, process, fault.seconds)
        if server is None:
            return None
        others = [one for one in self.stage.servers if one is not server]
        both = [((server, one), (one, server)) for one in others]
        return self._blocked(*[link for pair in both for link in pair])

    def _half_apart(self, fault: Fault, process: Process) -> Callable[[], None] | None:
        """Lose what a server sends to the others, or what they send to it."""
        server = self._server(fault, process, fault.seconds)
        if server is None:
            return None
        others = [one for one in self.stage.servers if one is not server]
        if fault.more < 0.5:
            return self._blocked(*[(server, one) for one in others])
        return self._blocked(*[(one, server) for one in others])

    def _slow_servers(self, fault: Fault, process: Process) -> Callable[[], None] | None:
        server = self._server(fault, process, fault.seconds)
        if server is None:
            return None
        links = self.stage.links
        others = [one for one in self.stage.servers if one is not server]
        for one in others:
            links.slow_down(server, one, seconds=fault.more * 0.2)
        return partial(
            _each, partial(links.slow_down, seconds=0.0), [(server, one) for one in others]
        )

    # --- of an operator --------------------------------------------------------------------------

    def _smash(self, fault: Fault, process: Process) -> None:
        """Remove the first node of a line."""
        self.world.after(0, self._operate, fault, 1)

    def _wipe(self, fault: Fault, process: Process) -> None:
        """Remove a line with all its nodes."""
        self.world.after(0, self._operate, fault, None)

    # Later, or a server would tell of the change before it answers what set the watch.
    def _operate(self, fault: Fault, most: int | None) -> None:
        leader = next((one for one in self.stage.servers if one.role == "leading"), None)
        line = self.stage.lines[fault.who % len(self.stage.lines)]
        if leader is None or not leader.serving or not line.in_line or self.stage.on_redis:
            return
        path = f"/d/{line.where}"
        names = sorted(leader.tree.children.get(path, ()), key=lambda name: name[-10:])[:most]
        paths = [f"{path}/{name}" for name in names]
        self.stage.judge.broken.update(paths)
        leader.operate(*[("delete", one, -1) for one in paths])
        if most is None:
            leader.operate(("delete", path, -1))
        if self.world.time > self._disturbed_until:
            seconds = self.stage.timeout / 6 + TICK
            self.world.after(seconds, self._notice, paths, self._disturbed_until)

    def _notice(self, paths: list[str], disturbed_until: float) -> None:
        """Let the judge look whether the holder has heard of that."""
        if disturbed_until == self._disturbed_until:
            self.stage.judge.notices(paths)


def _each(action: Callable[..., None], links: Iterable[tuple[Any, Any]]) -> None:
    for link in links:
        action(*link)


def _ignore(_: object) -> None:
    """Need no result."""
