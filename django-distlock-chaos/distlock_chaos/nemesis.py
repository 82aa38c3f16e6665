"""Finds the holder and carries the faults out, one after the other."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from distlock_chaos.proxy import TcpProxy

from . import network, schedule
from .clock import set_clock
from .scenes import STEP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlock_chaos.server import Server

    from .aim import Aim, Standing
    from .fleet import Fleet, Worker
    from .history import History
    from .redis_site import RedisNode, RedisSite
    from .scenes import Scenes
    from .schedule import Fault
    from .site import Site

#: How long a hold goes on after a fault that it should outlive, in seconds.
AFTERWARDS: Final = 1.0

_OF_LINKS: Final[dict[str, Callable[[TcpProxy], None]]] = {
    "cut": TcpProxy.cut,
    "long cut": TcpProxy.cut,
    "black hole": TcpProxy.black_hole,
    "black hole with traffic": TcpProxy.black_hole,
    "mute": lambda link: link.black_hole("to_server"),
    "deaf": lambda link: link.black_hole("to_client"),
    "late bytes": TcpProxy.hold_back,
}
_ON_SERVERS: Final = frozenset(schedule.OTHERS) - frozenset(_OF_LINKS) - {"interrupt"}


class Nemesis:
    """Does what a schedule says to the workers and the servers of a run.

    :param aim: finds the holder, through servers that serve
    :param progress: called with one line of text for each fault
    """

    def __init__(
        self,
        site: Site,
        fleet: Fleet,
        history: History,
        aim: Aim,
        scenes: Scenes,
        *,
        keys: Sequence[str],
        session_timeout: float,
        progress: Callable[[str], None],
    ) -> None:
        self._site = site
        self._fleet = fleet
        self._say = history.say
        self._aim = aim
        self._scenes = scenes
        self._keys = keys
        self._session_timeout = session_timeout
        self._progress = progress
        self._never = threading.Event()

    def run(self, faults: Sequence[Fault]) -> None:
        """Carry out all faults at their times; one that finds the nemesis late comes at once."""
        with self._aim:
            started = time.monotonic()
            for fault in faults:
                self._sleep(started + fault.at - time.monotonic())
                if fault.kind in schedule.SCENES:
                    self._play(fault)
                else:
                    self._carry_out(fault)

    def _play(self, fault: Fault) -> None:
        cast = self._scenes.cast(random.Random(fault.pick))  # noqa: S311 - reproducible, not secret
        pid = cast.holder.pid
        at = self._say("fault", kind=fault.kind, lasts=fault.lasts, pid=pid, key=cast.key)
        self._progress(f"{fault.kind}, {fault.lasts:.1f} s, process {pid}, a scene of its own")
        self._scenes.play(fault, cast)
        self._say("healed", kind=fault.kind, began=at)

    def _carry_out(self, fault: Fault) -> None:
        chance = random.Random(fault.pick)  # noqa: S311 - reproducible, not secret
        after = self._session_timeout + AFTERWARDS if fault.kind in schedule.LOSES else AFTERWARDS
        waiting = fault.kind == "interrupt"
        target = None
        if fault.aimed and waiting:
            target = self._aim.waiter(self._keys, chance)
        elif fault.aimed:
            target = self._aim.holder(self._keys, chance, self._fleet, fault.lasts + after)
        victim = self._fleet.with_pid(target.pid) if target else None
        worker = victim or chance.choice(self._fleet.workers)
        at = self._say(
            "fault",
            kind=fault.kind,
            lasts=fault.lasts,
            pid=worker.pid,
            key=target.key if target else None,
        )
        aim = "aimed at a waiter" if waiting else "aimed at the holder"
        aim = aim if victim else "not aimed"
        self._progress(f"{fault.kind}, {fault.lasts:.1f} s, process {worker.pid}, {aim}")
        if fault.kind in _ON_SERVERS:
            self._harm_servers(fault, worker)
        else:
            self._harm_worker(fault, worker, target)
        self._say("healed", kind=fault.kind, began=at)

    def _harm_worker(self, fault: Fault, worker: Worker, target: Standing | None) -> None:
        match fault.kind:
            case "pause" | "stop":
                self._stop(worker, fault.lasts)
            case kind if kind in _OF_LINKS:
                if kind == "black hole with traffic":
                    worker.order("traffic", fault.lasts)
                self._harm_links(worker, fault.lasts, _OF_LINKS[kind])
            case "kill":
                self._kill(worker, fault.lasts)
            case "fork":
                worker.order("fork")
            case "interrupt":
                if worker.ready:
                    worker.send(signal.SIGUSR1)
            case "break":
                self._break(target)
            case _:
                raise ValueError(f"There is no fault {fault.kind!r}.")

    def _harm_servers(self, fault: Fault, worker: Worker) -> None:
        server = self._server_of(worker)
        match fault.kind:
            case "refusals":
                with cast("RedisNode", server).refusing(fault.pick):
                    self._sleep(fault.lasts)
            case "server kill":
                self._kill_servers([server], fault.lasts)
            case "leader kill":
                self._kill_servers([self._site.leader()], fault.lasts)
            case "quorum loss":
                majority = len(self._site.servers) // 2 + 1
                self._kill_servers(self._site.servers[:majority], fault.lasts)
            case "rolling restart":
                for each in self._site.servers:
                    each.stop()
                    each.start()
            case "server pause":
                server.pause()
                try:
                    self._sleep(fault.lasts)
                finally:
                    server.resume()
            case "failover":
                site = cast("RedisSite", self._site)
                server.kill()
                former = site.promote()
                self._sleep(fault.lasts)
                site.demote(former)
            case "flush":
                cast("RedisNode", server).flush()
            case "server clock":
                set_clock(server.folder, STEP_SECONDS)
                self._sleep(fault.lasts)
                set_clock(server.folder, 0)
            case _:
                self._partition(worker, server, fault.lasts)

    def _partition(self, worker: Worker, server: Server, seconds: float) -> None:
        """Isolate a server with a client that can reach no other one."""

        last_way = worker.links[self._site.servers.index(server)]

        def cut_others(link: TcpProxy) -> None:
            if link is not last_way:
                link.cut()

        with network.isolated(server):
            self._harm_links(worker, seconds, cut_others)

    def _kill_servers(self, servers: Sequence[Server], seconds: float) -> None:
        for server in servers:
            server.kill()
        self._sleep(seconds)
        for server in servers:
            server.start(wait=False)
        for server in self._site.servers:
            server.wait_until_serving()

    # --- what it does to a worker ----------------------------------------------------------------

    def _stop(self, worker: Worker, seconds: float) -> None:
        self._say("stopped", pid=worker.pid)
        worker.send(signal.SIGSTOP)
        try:
            self._sleep(seconds)
        finally:
            worker.send(signal.SIGCONT)
            self._say("continued", pid=worker.pid)

    def _harm_links(self, worker: Worker, seconds: float, harm: Callable[[TcpProxy], None]) -> None:
        cut_off = harm is not TcpProxy.hold_back  # new connections pass
        try:
            for link in worker.links:
                harm(link)
            if cut_off:
                self._say("cut off", pid=worker.pid)
            self._sleep(seconds)
        finally:
            if cut_off:
                self._say("joined", pid=worker.pid)
            for link in worker.links:
                link.pass_through()

    def _kill(self, worker: Worker, seconds: float) -> None:
        pid = worker.pid
        worker.kill()
        self._say("killed", pid=pid)
        self._sleep(seconds)
        worker.restart()

    def _break(self, target: Standing | None) -> None:
        """Delete the lock node of the holder, as an operator may."""
        if target is None:
            return
        self._say("broke", key=target.key, pid=target.pid)
        if not self._aim.delete(target.path):
            self._progress("its node was gone already")

    def _server_of(self, worker: Worker) -> Server:
        return self._site.servers[worker.server or 0]

    def _sleep(self, seconds: float) -> None:
        self._never.wait(max(seconds, 0))
