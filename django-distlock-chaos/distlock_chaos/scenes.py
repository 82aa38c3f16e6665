"""Faults that need a plot: who holds, who waits and at which server, before anything breaks.

Each scene casts workers, tells them to take a key of the scene's own, and waits until the queue is
as it should be. So it strikes at the exact moment that it is about, in each run, while the rest of
the fleet goes on working with the other keys.
"""

from __future__ import annotations

import itertools
import signal
import time
import typing
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from distlock_chaos.server import ZooKeeper

from . import network
from .clock import set_clock
from .site import change

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from distlock_chaos.server import Server

    from .aim import Aim
    from .fleet import Fleet, Worker
    from .history import History
    from .redis_site import RedisNode, RedisSite
    from .register import Registers
    from .schedule import Fault
    from .site import Site

#: How long a scene waits until its actors are in their places, in seconds.
READY_SECONDS: Final = 5.0
#: For how long an actor waits for its lock, and holds it unless told to let go, in seconds.
PATIENCE_SECONDS: Final = 40.0
#: How long the waiter of an exchanged queue has to join the new one before it is told to.
JOIN_SECONDS: Final = 0.2
#: By how much a clock is set ahead, in seconds.
STEP_SECONDS: Final = 300.0
#: How long a mute leader is heard by nobody; its followers give it up after five ticks.
MUTE_SECONDS: Final = 4.0
#: How long a connection may take to carry on its session, in seconds.
CONNECT_SECONDS: Final = 0.5
#: For how long an actor waits for a reply that is lost, in seconds.
LOST_SECONDS: Final = 1.0
#: How long a scene goes on after its last stroke, in seconds.
LAST_SECONDS: Final = 1.5


class NotReady(Exception):
    """The actors did not get into their places in time, so there is nothing to break."""


@dataclass(frozen=True)
class Cast:
    """The workers of one scene; of two workers, the holder plays the rival too."""

    key: str
    holder: Worker
    waiter: Worker
    rival: Worker


class Scenes:
    """Plays the faults of `schedule.SCENES`.

    :param aim_over: returns the aim through the servers of a connection string
    """

    def __init__(
        self,
        site: Site,
        fleet: Fleet,
        registers: Registers,
        history: History,
        aim_over: Callable[[str], Aim],
        *,
        keys: Sequence[str],
        progress: Callable[[str], None],
    ) -> None:
        self._site = site
        self._fleet = fleet
        self._registers = registers
        self._say = history.say
        self._aim_over = aim_over
        self._keys = keys
        self._progress = progress
        self._numbers = itertools.count(1)

    def cast(self, chance: random.Random) -> Cast:
        """Choose the workers of the next scene, and its key."""
        actors = chance.sample(self._fleet.workers, min(3, len(self._fleet.workers)))
        holder, waiter, rival = (actors * 2)[:3]
        return Cast(f"scene:{next(self._numbers)}", holder, waiter, rival)

    def play(self, fault: Fault, cast: Cast) -> None:  # noqa: PLR0912 - one a scene
        """Carry a fault out once all servers serve; returns when all is healed."""
        for server in self._site.servers:
            server.wait_until_serving()
        try:
            match fault.kind:
                case "line begun anew":
                    self._line_begun_anew(cast)
                case "long pause":
                    self._long_pause(fault.lasts, cast)
                case "leader pause":
                    self._leader_pause(fault.lasts)
                case "frozen leader":
                    self._frozen_leader(fault, cast)
                case "leader partition" | "mute leader":
                    self._leader_partition(fault, cast)
                case "late answer":
                    self._late_answer(fault, cast)
                case "late acquire":
                    self._late_acquire(fault.lasts, cast)
                case "lost reply":
                    self._lost_reply(cast)
                case "demoted primary":
                    self._demoted_primary(fault.lasts, cast)
                case "undone break":
                    self._undone_break(fault.lasts, cast)
                case "longer timeouts":
                    self._longer_timeouts(fault.lasts, cast)
                case "replaced server" if isinstance(self._site, ZooKeeper):
                    self._replaced_server(fault.lasts)
                case "replaced server":
                    self._replaced_redis(fault.lasts, cast)
                case "clock step":
                    self._clock_step(fault.lasts, cast)
                case _:
                    raise ValueError(f"There is no scene {fault.kind!r}.")
        except NotReady as error:
            self._progress(f"{fault.kind} is called off: {error}")
        finally:
            for worker in (cast.holder, cast.waiter, cast.rival):
                worker.order("keep", cast.key, 0.0)
                worker.order("rest", 0.0)

    # --- the scenes ------------------------------------------------------------------------------

    def _line_begun_anew(self, cast: Cast) -> None:
        """Remove a held queue, and let the former holder's process join the next one.

        The numbers begin at 0 again, so its new node seems to follow the one that is gone. All this
        happens before the holder's first heartbeat, from which on it watches its node.
        """
        with self._aim() as aim:
            self._lay_off(aim, cast.holder)
            self._take(cast.holder, cast.key)
            self._await(aim, cast.key, cast.holder)
            self._take(cast.waiter, cast.key)
            self._await(aim, cast.key, cast.holder, cast.waiter)
            for worker in (cast.holder, cast.waiter):
                self._say("broke", key=cast.key, pid=worker.pid)
            if not aim.delete_queue(cast.key):
                raise NotReady("its queue could not be removed")
            if not aim.await_queue(cast.key, [cast.waiter.pid], JOIN_SECONDS):
                self._take(cast.waiter, cast.key)
                self._await(aim, cast.key, cast.waiter)
            self._take(cast.holder, cast.key)
            self._await(aim, cast.key, cast.waiter, cast.holder)
            cast.holder.order("keep", cast.key, 0.0)
            time.sleep(LAST_SECONDS)

    def _long_pause(self, seconds: float, cast: Cast) -> None:
        """Stop a holder with a waiter behind it for most of a session timeout."""
        with self._aim() as aim:
            self._take(cast.holder, cast.key)
            self._await(aim, cast.key, cast.holder)
            self._take(cast.waiter, cast.key)
            self._await(aim, cast.key, cast.holder, cast.waiter)
            with self._stopped(cast.holder):
                time.sleep(seconds)
            time.sleep(LAST_SECONDS)

    def _leader_pause(self, seconds: float) -> None:
        """Pause the leader for less than a session, so that clients try their luck elsewhere."""
        with _paused(self._site.leader()):
            time.sleep(seconds)

    def _frozen_leader(self, fault: Fault, cast: Cast) -> None:
        """Freeze the leader and a waiter together, as on one hypervisor, when its turn has come.

        Another leader expires the waiter's session, and the rival gets the lock there. Then the
        waiter goes on, with the news of its turn in its buffer and a deposed leader to ask.
        """
        leader = self._site.leader()
        others = [server for server in self._site.servers if server is not leader]
        with ExitStack() as stack:
            for worker, servers in (
                (cast.holder, others),
                (cast.rival, others),
                (cast.waiter, [leader]),
            ):
                stack.enter_context(self._connected_to(worker, servers))
            aim = stack.enter_context(self._aim(*others))
            # A write of another thread would keep the deposed leader from answering its proof.
            self._lay_off(aim, cast.waiter)
            for worker in (cast.holder, cast.waiter, cast.rival):
                self._take(worker, cast.key)
                order = [cast.holder, cast.waiter, cast.rival]
                self._await(aim, cast.key, *order[: order.index(worker) + 1])
            with self._stopped(cast.waiter):
                cast.holder.order("keep", cast.key, 0.0)
                self._await(aim, cast.key, cast.waiter, cast.rival)
                cast.rival.order("keep", cast.key, PATIENCE_SECONDS)
                with _paused(leader):
                    gone = aim.await_queue(cast.key, [cast.rival.pid], fault.lasts + READY_SECONDS)
                    cast.waiter.send(signal.SIGCONT)
                    time.sleep(0.1 + fault.pick * 0.3)
            if not gone:
                raise NotReady("the waiter's session did not expire")
            time.sleep(LAST_SECONDS)

    def _leader_partition(self, fault: Fault, cast: Cast) -> None:
        """Cut the leader off from its followers, together with a holder that knows only it.

        A mute leader hears its followers for a while yet.
        """
        leader = self._site.leader()
        others = [server for server in self._site.servers if server is not leader]
        with ExitStack() as stack:
            stack.enter_context(self._connected_to(cast.holder, [leader]))
            stack.enter_context(self._connected_to(cast.waiter, others))
            aim = stack.enter_context(self._aim(*others))
            # A write of another thread would keep the deposed leader from answering its heartbeats.
            self._lay_off(aim, cast.holder)
            self._take(cast.holder, cast.key)
            self._await(aim, cast.key, cast.holder)
            self._take(cast.waiter, cast.key)
            self._await(aim, cast.key, cast.holder, cast.waiter)
            if fault.kind == "mute leader":
                stack.enter_context(network.isolated(leader, mute=True))
                time.sleep(MUTE_SECONDS)
            stack.enter_context(network.isolated(leader))
            if not aim.await_queue(cast.key, [cast.waiter.pid], fault.lasts + READY_SECONDS):
                raise NotReady("the holder's session did not expire")
            time.sleep(LAST_SECONDS)

    def _late_answer(self, fault: Fault, cast: Cast) -> None:
        """Stop a holder for a while, and its follower just after the next heartbeat.

        The follower has answered the heartbeat, and has not reported it to the leader yet. Or the
        same with a process at rest, which takes the lock when it goes on.
        """
        leader = self._site.leader()
        followers = [server for server in self._site.servers if server is not leader]
        follower = followers[int(fault.pick * len(followers))]
        others = [server for server in self._site.servers if server is not follower]
        acquires = int(fault.pick * 4) % 2 == 1
        with ExitStack() as stack:
            stack.enter_context(self._connected_to(cast.holder, [follower]))
            stack.enter_context(self._connected_to(cast.rival, others))
            aim = stack.enter_context(self._aim(*others))
            self._lay_off(aim, cast.holder)
            if not acquires:
                self._queue_up(aim, cast)
            time.sleep(fault.lasts)  # for some heartbeats, or pings
            with self._stopped(cast.holder):
                if acquires:
                    self._take(cast.holder, cast.key)
                    time.sleep(fault.lasts / 2)
                time.sleep(fault.lasts)
            if acquires:
                self._await(aim, cast.key, cast.holder)
            time.sleep(0.02 + fault.pick * 0.1)
            with _paused(follower):
                if acquires:
                    self._take(cast.rival, cast.key)
                self._await_end(aim, cast.key, cast.rival, fault.lasts * 3)

    def _late_acquire(self, seconds: float, cast: Cast) -> None:
        """Let a process at rest take the key between two pings, and cut it off at the grant."""
        with self._aim() as aim:
            self._lay_off(aim, cast.holder)
            time.sleep(seconds)
            self._take(cast.holder, cast.key)
            self._await(aim, cast.key, cast.holder)
            with self._out_of_reach(cast.holder):
                self._take(cast.waiter, cast.key)
                self._await_end(aim, cast.key, cast.waiter, seconds * 4)

    def _lost_reply(self, cast: Cast) -> None:
        """Lose the reply to a create, and let a leader that was deposed before wake up.

        It answers the search for the node as if it was the leader still, and does not know it.
        """
        leader = self._site.leader()
        others = [server for server in self._site.servers if server is not leader]
        way = cast.waiter.links[self._site.servers.index(leader)]
        ways = [link for link in cast.waiter.links if link is not way]
        with ExitStack() as stack:
            for worker in (cast.holder, cast.waiter):
                stack.enter_context(self._connected_to(worker, others))
            aim = stack.enter_context(self._aim(*others))
            # A server refuses a session that has seen more than it has itself.
            self._lay_off(aim, cast.waiter)
            self._take(cast.holder, cast.key)
            self._await(aim, cast.key, cast.holder)
            with _paused(leader):
                self._site.leader()
                self._await_connection(cast.waiter, others)
                time.sleep(CONNECT_SECONDS)
                for link in ways:
                    link.black_hole("to_client")
                cast.waiter.order("take", cast.key, LOST_SECONDS)
                self._await(aim, cast.key, cast.holder, cast.waiter)
                time.sleep(LOST_SECONDS)
                for link in ways:
                    link.cut()
                way.pass_through()
                self._await_connection(cast.waiter, [leader])
            time.sleep(LAST_SECONDS)

    def _demoted_primary(self, seconds: float, cast: Cast) -> None:
        """Let a replica take the place of a primary, which goes on for a while with a holder.

        Then that becomes a replica, and the holder's connection stays.
        """
        site = typing.cast("RedisSite", self._site)
        with self._aim() as aim:
            self._queue_up(aim, cast)
        former = site.promote()
        try:
            for worker in self._fleet.workers:
                if worker is not cast.holder:
                    worker.links[0].drop()
            time.sleep(seconds)
        finally:
            site.demote(former)
        time.sleep(LAST_SECONDS)

    def _undone_break(self, seconds: float, cast: Cast) -> None:
        """Break a lock on a primary that no replica hears, and let one of these take its place."""
        site = typing.cast("RedisSite", self._site)
        with self._aim() as aim:
            # Its session ends if one of its own transactions is undone.
            self._lay_off(aim, cast.holder)
            self._queue_up(aim, cast)
            time.sleep(seconds)  # for a heartbeat, from which on the holder watches its node
            site.part_from_replicas()
            self._say("broke", key=cast.key, pid=cast.holder.pid)
            aim.delete(aim.queue(cast.key)[0].path)
            time.sleep(LAST_SECONDS)  # the holder's delete may be behind a WAIT for the replicas
        site.leader().kill()
        site.demote(site.promote())
        time.sleep(LAST_SECONDS)

    def _longer_timeouts(self, seconds: float, cast: Cast) -> None:
        """Restart all servers, which then grant at least so much, and cut a holder off.

        The next leader counts with the timeout that the holder's session began with.
        """
        try:
            self._restart(f"{seconds * 1000:.0f}")
            with self._aim() as aim:
                self._queue_up(aim, cast)
                for link in cast.holder.links:
                    link.cut()
                leader = self._site.leader()
                leader.kill()
                leader.start(wait=False)
                self._await_end(aim, cast.key, cast.rival, seconds)
        finally:
            for link in cast.holder.links:
                link.pass_through()
            self._restart("-1")  # two ticks

    def _queue_up(self, aim: Aim, cast: Cast) -> None:
        """Let the holder take the key, and the rival wait for it."""
        self._take(cast.holder, cast.key)
        self._await(aim, cast.key, cast.holder)
        self._take(cast.rival, cast.key)
        self._await(aim, cast.key, cast.holder, cast.rival)

    def _restart(self, least: str) -> None:
        for server in self._site.servers:
            server.stop()
            change(server, minSessionTimeout=least)
            server.start()

    def _await_end(self, aim: Aim, key: str, rival: Worker, seconds: float) -> None:
        """Wait until the holder's session has expired, and a little longer."""
        if not aim.await_queue(key, [rival.pid], seconds + READY_SECONDS):
            raise NotReady("the holder's session did not expire")
        time.sleep(LAST_SECONDS)

    def _replaced_server(self, seconds: float) -> None:
        """Replace all servers by empty ones."""
        for server in self._site.servers:
            server.kill()
        for server in self._site.servers:
            server.erase()
        if isinstance(self._site, ZooKeeper):
            # It grants at once, and its tokens begin again.
            self._registers.begin_era()
            self._say("replaced")
        time.sleep(seconds)
        for server in self._site.servers:
            server.start(wait=False)
        for server in self._site.servers:
            server.wait_until_serving()

    def _replaced_redis(self, seconds: float, cast: Cast) -> None:
        """Erase a held Redis; the first that comes to it has a short session timeout.

        The holder comes last.
        """
        with self._aim() as aim:
            self._take(cast.holder, cast.key)
            self._await(aim, cast.key, cast.holder)
        workers = sorted(self._fleet.workers, key=lambda worker: worker is cast.holder)
        for worker in workers:
            worker.links[0].cut()
        try:
            self._replaced_server(seconds)
            typing.cast("RedisNode", self._site.leader()).meet_hasty()
        finally:
            for worker in workers:
                if worker is cast.holder:
                    self._take(cast.waiter, cast.key)
                    time.sleep(LAST_SECONDS)
                worker.links[0].pass_through()

    def _clock_step(self, seconds: float, cast: Cast) -> None:
        """Set the leader's clock five minutes ahead while a lease is held, and back later."""
        leader = self._site.leader()
        with self._aim() as aim:
            self._take(cast.holder, cast.key)
            self._await(aim, cast.key, cast.holder)
            try:
                set_clock(leader.folder, STEP_SECONDS)
                self._take(cast.waiter, cast.key)
                time.sleep(seconds)
            finally:
                set_clock(leader.folder, 0)

    # --- what they are made of -------------------------------------------------------------------

    def _take(self, worker: Worker, key: str) -> None:
        """Let another thread of a worker take the key, and hold it until it is told to let go."""
        worker.order("keep", key, PATIENCE_SECONDS)
        worker.order("take", key, PATIENCE_SECONDS)

    def _lay_off(self, aim: Aim, worker: Worker) -> None:
        """Let a worker do nothing but what the scene tells it."""
        worker.order("rest", PATIENCE_SECONDS)
        for key in self._keys:
            if not aim.await_absence(key, worker.pid, READY_SECONDS):
                raise NotReady(f"process {worker.pid} is still busy")

    def _await(self, aim: Aim, key: str, *workers: Worker) -> None:
        if not aim.await_queue(key, [worker.pid for worker in workers], READY_SECONDS):
            raise NotReady(f"there are not {len(workers)} in the queue")

    def _aim(self, *servers: Server) -> Aim:
        hosts = ",".join(server.address for server in servers or self._site.servers)
        return self._aim_over(hosts)

    @contextmanager
    def _connected_to(self, worker: Worker, servers: list[Server]) -> Iterator[None]:
        """Let a worker reach these servers only."""
        wanted = [self._site.servers.index(server) for server in servers]
        try:
            for number, link in enumerate(worker.links):
                if number not in wanted:
                    link.cut()
            self._await_connection(worker, servers)
            yield
        finally:
            for link in worker.links:
                link.pass_through()

    def _await_connection(self, worker: Worker, servers: list[Server]) -> None:
        wanted = [self._site.servers.index(server) for server in servers]
        deadline = time.monotonic() + READY_SECONDS
        while worker.server not in wanted:
            if time.monotonic() > deadline:
                raise NotReady(f"process {worker.pid} did not connect to another server")
            time.sleep(0.01)

    @contextmanager
    def _out_of_reach(self, worker: Worker) -> Iterator[None]:
        try:
            for link in worker.links:
                link.black_hole()
            self._say("cut off", pid=worker.pid)
            yield
        finally:
            self._say("joined", pid=worker.pid)
            for link in worker.links:
                link.pass_through()

    @contextmanager
    def _stopped(self, worker: Worker) -> Iterator[None]:
        self._say("stopped", pid=worker.pid)
        worker.send(signal.SIGSTOP)
        try:
            yield
        finally:
            worker.send(signal.SIGCONT)
            self._say("continued", pid=worker.pid)


@contextmanager
def _paused(server: Server) -> Iterator[None]:
    server.pause()
    try:
        yield
    finally:
        server.resume()
