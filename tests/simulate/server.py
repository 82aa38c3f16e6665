"""One server of the ensemble: it looks for a leader, follows one, or leads.

- Only the leader expires sessions, in buckets of a tick (``SessionTrackerImpl``, ``ExpiryQueue``).
  A follower notes whom it has heard, and reports that when the leader pings it, each half tick
  (``LearnerSessionTracker``, ``Leader.lead``, ``LearnerHandler``). A request that it forwards
  touches nothing there. The timeout of a touch is the connection's; a new leader begins with the
  session's first one (``ZooKeeperServer.processConnectRequest``, ``sessionsWithTimeouts``).
- A write counts when a majority has it, also one that is refused. A ``sync`` needs nobody, but
  waits for the writes that were proposed before (``Leader.processSync``).
- Replies on a connection come in the order of the requests; a read waits for the writes before it
  (``CommitProcessor``).
- A leader looks once a tick whether a majority has sent anything for `SYNC_LIMIT` ticks; a follower
  gives up when it has heard nothing for as long. Who gives up closes all connections.

An election itself is a short cut: who looks for a leader sees what the others believe. Nobody sees
a server that stands still, or one behind a blocked link.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from distlock.engine.errors import NoNode, SessionOver
from distlock.engine.kazoo import EXCEPTIONS
from distlock.keys.limits import LEAST_TICKS, MOST_TICKS

from .links import END, Connection
from .tree import Plan, Tree, Txn
from .world import Host

if TYPE_CHECKING:
    from random import Random

    from .links import Links
    from .world import World

#: Seconds.
TICK: Final = 1.0
#: In ticks.
SYNC_LIMIT: Final = 2
INIT_LIMIT: Final = 5
#: How often a server looks for a leader, in seconds.
LOOK: Final = 0.2
#: How often the leader removes empty containers, in seconds.
REAP: Final = 5.0
#: An epoch has so many transactions.
EPOCH: Final = 1_000_000
#: What waits for its turn among the requests of a connection, and is answered by the server alone.
READS: Final = ("list", "get", "ping", "unwatch")
_NO_WATCHER: Final = -121
_MOVED: Final = -118


class Client:
    """A client's connection, as its server has it."""

    def __init__(self, link: Connection, number: int) -> None:
        self.link = link
        self.number = number
        self.session = 0
        self.timeout = 0.0
        #: The requests without a reply: the number of each, the request, and the outcome.
        self.requests: deque[list[Any]] = deque()


class Follower:
    """A follower, as its leader has it."""

    def __init__(self, server: Server, link: Connection, tick: int) -> None:
        self.server = server
        self.link = link
        #: The tick in which it was last heard.
        self.heard = tick
        self.synced = False


class Server(Host):
    """A server; see above."""

    def __init__(self, world: World, links: Links, number: int, random: Random) -> None:
        super().__init__(world, f"server{number}", random, random.uniform(0.9995, 1.0005))
        self.links = links
        self.number = number
        self.ensemble: list[Server] = []
        self.tree = Tree()
        #: All that was proposed to it, carried out up to `tree.zxid`.
        self.log: list[Txn] = []
        #: The epoch whose leader it has followed, and the last one that it has accepted.
        self.epoch = self._accepted = 0
        #: How far its time of day is off, which somebody may set.
        self.wall = 0.0
        #: The least timeout that it grants, in ticks.
        self.least = LEAST_TICKS
        self._sessions = 0
        self.begin()

    def begin(self) -> None:
        """Begin, or begin again after a crash: what is written is there."""
        self.dead = False
        self.clients: dict[int, Client] = {}
        self._connected = 0
        self._catch_up_with_log()
        self._look_for_leader()
        self.after(self.random.random() * TICK / 2, "tick", self._tick, False)

    def crash(self) -> None:
        """End at once."""
        self.die()
        self.links.close_all(self)

    def _look_for_leader(self) -> None:
        """Serve nobody, and look for a leader."""
        for client in list(self.clients.values()):
            client.link.close(1)
        self.clients.clear()
        self.tree.watches.clear()
        self.role = "looking"
        self.serving = False
        self.leader: Server | None = None
        self._to_leader: Connection | None = None
        self._heard = self.clock()
        self._touched: dict[int, float] = {}
        self._followers: dict[int, Follower] = {}
        self.after(LOOK * self.random.uniform(0.5, 1.5), "look", self._look)

    def _give_up(self, why: str) -> None:
        self.world.say(self, "gives up:", why)
        if self._to_leader is not None:
            self._to_leader.close(0)
        for follower in self._followers.values():
            follower.link.close(1)
        self._look_for_leader()

    @property
    def majority(self) -> int:
        return len(self.ensemble) // 2 + 1

    @property
    def last(self) -> int:
        """The last transaction that was proposed to it."""
        return self.log[-1].zxid if self.log else 0

    def _catch_up_with_log(self) -> None:
        for txn in self.log:
            if txn.zxid > self.tree.zxid:
                self._apply(txn)

    # --- elections -------------------------------------------------------------------------------

    def _look(self) -> None:
        if self.role != "looking":
            return
        others = [
            one
            for one in self.ensemble
            if one is not self and not (one.dead or one.stopped) and self.links.works(self, one)
        ]
        leader = next((one for one in others if self._may_follow(one, others)), None)
        looking = [self, *(one for one in others if one.role == "looking")]
        best = max(looking, key=lambda one: (one.epoch, one.last, one.number))
        if leader is not None:
            self._follow(leader)
        elif len(looking) >= self.majority and best is self:
            self._lead(max(one._accepted for one in looking) + 1)
        else:
            self.after(LOOK * self.random.uniform(0.5, 1.5), "look", self._look)

    def _may_follow(self, one: Server, others: list[Server]) -> bool:
        if one.role != "leading" or one._accepted < self.epoch:
            return False
        votes = 1 + sum(other.leader is one for other in others)
        return not one.serving or votes >= self.majority

    def _lead(self, epoch: int) -> None:
        self.world.say(self, "leads epoch", epoch)
        self.role = "leading"
        self._accepted = epoch
        self._catch_up_with_log()
        self._zxid = epoch * EPOCH
        self._ticks, self._since = 0, self.clock()
        #: The proposals without a majority, with who has them and which syncs wait for them.
        self._outstanding: deque[tuple[Txn, set[int], list[Any]]] = deque()
        self._ahead = dict(self.tree.nodes)
        #: Session → when it expires, and where it is connected.
        self._expires: dict[int, float] = {}
        self._owners: dict[int, int] = {}
        self._closing: set[int] = set()
        self._serve_if_followed()

    def _serve_if_followed(self) -> None:
        synced = [one for one in self._followers.values() if one.synced]
        if not self.serving and len(synced) + 1 >= self.majority:
            self.world.say(self, "serves")
            self.serving = True
            self.epoch = self._accepted
            self.tree.zxid = max(self.tree.zxid, self.epoch * EPOCH)
            for session, timeout in self.tree.sessions.items():
                self._touch(session, timeout)
            self.after(TICK - self.clock() % TICK, "expire", self._expire, self.epoch)
            self.after(REAP, "reap", self._reap, self.epoch)
        if self.serving:
            for one in synced:
                one.link.send(1, ("serve", self.epoch))

    def _follow(self, leader: Server) -> None:
        self.world.say(self, "follows", leader)
        self.role, self.leader = "following", leader
        self._heard = self.clock()
        link = self._to_leader = Connection(self.links, (self, leader))
        link.take[0] = lambda message: self._from_leader(link, message)
        leader.now(link, leader._be_followed, self, link)

    def _be_followed(self, server: Server, link: Connection) -> None:
        if self.role != "leading":
            link.close(1)
            return
        follower = self._followers[server.number] = Follower(server, link, self._ticks)
        link.take[1] = lambda message: self._from_follower(follower, message)
        carried_out = [txn for txn in self.log if txn.zxid <= self.tree.zxid]
        link.send(1, ("state", self._accepted, self.tree.copy(), carried_out))
        for txn, *_ in self._outstanding:
            link.send(1, ("propose", txn))

    # --- leader and followers --------------------------------------------------------------------

    def _from_leader(self, link: Connection, message: Any) -> None:
        if link is not self._to_leader:
            return
        self._heard = self.clock()
        match message:
            case ("end",):
                self._give_up("the leader has gone")
            case ("state", epoch, tree, log):
                self.epoch = self._accepted = epoch
                self.tree, self.log = tree, list(log)
                link.send(0, ("has", 0))
            case ("serve", epoch):
                self.serving = True
                self.tree.zxid = max(self.tree.zxid, epoch * EPOCH)
            case ("ping",):
                touched, self._touched = self._touched, {}
                link.send(0, ("heard", touched))
            case ("propose", txn):
                self.log.append(txn)
                link.send(0, ("has", txn.zxid))
            case ("commit", zxid):
                self._apply(next(txn for txn in reversed(self.log) if txn.zxid == zxid))
            case ("synced", number, xid):
                self._settle(number, xid, True, None)
            case ("revalidated", number, alive):
                self._greet(number, alive)

    def _from_follower(self, follower: Follower, message: Any) -> None:
        if self._followers.get(follower.server.number) is not follower:
            return
        follower.heard = self._ticks
        match message:
            case ("end",):
                del self._followers[follower.server.number]
                follower.link.close(1)
            case ("has", 0):
                follower.synced = True
                self._serve_if_followed()
            case ("has", zxid):
                for txn, has, _ in self._outstanding:
                    if txn.zxid == zxid:
                        has.add(follower.server.number)
                self._commit()
            case ("heard", touched):
                for session, timeout in touched.items():
                    self._touch(session, timeout, known=True)
            case ("revalidate", number, session, timeout):
                alive = self._revalidate(session, timeout, follower.server.number)
                follower.link.send(1, ("revalidated", number, alive))
            case ("sync", number, xid):
                self._sync(lambda: follower.link.send(1, ("synced", number, xid)))
            case ("request", origin, session, request):
                self._propose(origin, session, request)

    def _tick(self, whole: bool) -> None:
        """Ping the followers; look each second time whether the majority, or the leader, is there.

        (``Leader.lead``, ``Follower.followLeader``)
        """
        self.after(TICK / 2, "tick", self._tick, not whole)
        if self.role == "following" and self.clock() - self._heard > SYNC_LIMIT * TICK:
            self._give_up("the leader is silent")
        elif self.role == "leading":
            if whole:
                self._ticks += 1
                there = [f for f in self._followers.values() if f.heard + SYNC_LIMIT >= self._ticks]
                if self.serving and len(there) + 1 < self.majority:
                    self._give_up("no majority")
                elif not self.serving and self.clock() - self._since > INIT_LIMIT * TICK:
                    self._give_up("nobody follows")
            for follower in self._followers.values():
                follower.link.send(1, ("ping",))

    # --- sessions, at the leader -----------------------------------------------------------------

    def _touch(self, session: int, timeout: float, *, known: bool = False) -> None:
        if session not in self._closing and (not known or session in self._expires):
            self._expires[session] = ((self.clock() + timeout) // TICK + 1) * TICK

    def _expire(self, epoch: int) -> None:
        if self.role == "leading" and self.epoch == epoch:
            now = self.clock()
            for session in [one for one, at in self._expires.items() if at <= now]:
                self.world.say(self, f"expires session {session:x}")
                self._propose(None, session, ("close",))
            self.after(TICK - now % TICK, "expire", self._expire, epoch)

    def _revalidate(self, session: int, timeout: float, owner: int) -> bool:
        if session not in self._expires or session in self._closing:
            return False
        self._touch(session, timeout)
        self._owners[session] = owner
        return True

    def _refusal(self, session: int, owner: int) -> Exception | None:
        if session not in self._expires or session in self._closing:
            over: Exception = SessionOver()
            return over
        if self._owners.setdefault(session, owner) != owner:
            moved: Exception = EXCEPTIONS[_MOVED]()
            return moved
        return None

    # --- writes, at the leader -------------------------------------------------------------------

    def _propose(self, origin: Any, session: int, request: tuple[Any, ...]) -> None:
        """Work a request out, and propose what it changes, or that it is refused."""
        self._zxid += 1
        kind = request[0]
        plan = Plan(self._ahead, self._zxid, self.world.time + self.wall, session)
        opens = None
        outcome: tuple[Any, Exception | None] = (True, None)
        error = None if origin is None or kind == "open" else self._refusal(session, origin[0])
        if error is not None:
            outcome = ([error], None) if kind == "multi" else (None, error)
        elif kind == "open":
            opens = request[1]
            self._owners[session] = origin[0]
            self._touch(session, opens)
        elif kind == "close":
            self._closing.add(session)
            self._expires.pop(session, None)
            plan.end()
        else:
            outcome = plan.make(request)
        closes = kind == "close" and error is None
        txn = Txn(self._zxid, session, tuple(plan.changes), origin, opens, closes, outcome)
        for _, path, node in txn.changes:
            if node is None:
                del self._ahead[path]
            else:
                self._ahead[path] = node
        self.log.append(txn)
        self._outstanding.append((txn, {self.number}, []))
        for follower in self._followers.values():
            follower.link.send(1, ("propose", txn))
        self._commit()

    def _commit(self) -> None:
        while self._outstanding and len(self._outstanding[0][1]) >= self.majority:
            txn, _, syncs = self._outstanding.popleft()
            self._apply(txn)
            for follower in self._followers.values():
                follower.link.send(1, ("commit", txn.zxid))
            for synced in syncs:
                synced()

    def _sync(self, synced: Any) -> None:
        if self._outstanding:
            self._outstanding[-1][2].append(synced)
        else:
            synced()

    def _reap(self, epoch: int) -> None:
        if self.role == "leading" and self.epoch == epoch:
            for path, node in list(self.tree.nodes.items()):
                if node.container and node.made and not node.numChildren:
                    self._propose(None, 0, ("delete", path, -1))
            self.after(REAP, "reap", self._reap, epoch)

    def operate(self, *requests: tuple[Any, ...]) -> None:
        """Carry out what an operator wants, who uses another connection."""
        for request in requests:
            self._propose(None, 0, request)

    # --- clients ---------------------------------------------------------------------------------

    def accept(self, link: Connection) -> None:
        """Serve a client that has connected."""
        self._connected += 1
        client = Client(link, self._connected)
        link.take[1] = lambda message: self._from_client(client, message)
        if self.serving:
            self.clients[client.number] = client
        else:
            link.close(1)

    def _from_client(self, client: Client, message: Any) -> None:
        if client.number not in self.clients:
            return
        if message is END:
            self._drop(client)
        elif client.session:
            self._request(client, *message)
        else:
            self._connect(client, *message)

    def _drop(self, client: Client) -> None:
        self.clients.pop(client.number, None)
        self.tree.unwatch(client)
        client.link.close(1)

    def _connect(self, client: Client, seen: int, timeout: float, session: int) -> None:
        if seen > self.tree.zxid:
            self.world.say(self, "has seen less than", client.link.hosts[0])
            self._drop(client)
            return
        client.timeout = min(max(timeout, self.least * TICK), MOST_TICKS * TICK)
        for other in [one for one in self.clients.values() if session and one.session == session]:
            self._drop(other)
        if not session:
            self._sessions += 1
            client.session = (self.number << 16) + (self.epoch << 8) + self._sessions
            client.requests.append([0, ("open", client.timeout), None])
            self._write(client, 0, ("open", client.timeout))
            return
        client.session = session
        if self._to_leader is not None:
            self._to_leader.send(0, ("revalidate", client.number, session, client.timeout))
        else:
            self._greet(client.number, self._revalidate(session, client.timeout, self.number))

    def _greet(self, number: int, alive: bool) -> None:
        client = self.clients.get(number)
        if client is not None:
            if alive:
                client.link.send(1, ("connected", client.session, client.timeout))
            else:
                client.link.send(1, ("connected", 0, 0.0))
                self._drop(client)

    def _request(self, client: Client, xid: int, request: tuple[Any, ...]) -> None:
        if self.role == "leading":
            self._touch(client.session, client.timeout, known=True)
        else:
            self._touched[client.session] = client.timeout
        client.requests.append([xid, request, None])
        if request[0] == "sync":
            if self._to_leader is not None:
                self._to_leader.send(0, ("sync", client.number, xid))
            elif (error := self._refusal(client.session, self.number)) is not None:
                self._settle(client.number, xid, None, error)
            else:
                self._sync(lambda: self._settle(client.number, xid, True, None))
        elif request[0] not in READS:
            self._write(client, xid, request)
        self._reply(client)

    def _write(self, client: Client, xid: int, request: tuple[Any, ...]) -> None:
        origin = self.number, client.number, xid
        if self._to_leader is not None:
            self._to_leader.send(0, ("request", origin, client.session, request))
        else:
            self._propose(origin, client.session, request)

    def _apply(self, txn: Txn) -> None:
        self.tree.apply(txn, self._fire)
        if txn.origin is not None and txn.origin[0] == self.number:
            _, number, xid = txn.origin
            self._settle(number, xid, *txn.outcome)
        if txn.closes:
            for client in [one for one in self.clients.values() if one.session == txn.session]:
                self._drop(client)

    def _fire(self, client: Client, event: str, path: str) -> None:
        client.link.send(1, ("event", event, path))

    def _settle(self, number: int, xid: int, value: Any, error: Exception | None) -> None:
        client = self.clients.get(number)
        if client is None:
            return
        for request in client.requests:
            if request[0] == xid:
                request[2] = value, error
        self._reply(client)

    def _reply(self, client: Client) -> None:
        """Reply to all requests that are done, in their order."""
        while client.requests:
            xid, request, outcome = client.requests[0]
            if outcome is None:
                if request[0] not in READS:
                    return
                outcome = self._read(client, request)
            client.requests.popleft()
            if request[0] == "open":
                self._greet(client.number, alive=True)
                continue
            steps = outcome[0] if request[0] == "multi" and outcome[0] else ()
            if any(isinstance(one, EXCEPTIONS[_MOVED]) for one in (outcome[1], *steps)):
                self._drop(client)  # also for an outcome of a multi (``FinalRequestProcessor``)
                return
            if request[0] != "ping":
                self.world.happened(f"answer to {request[0]}", client.link.hosts[0])
            client.link.send(1, ("reply", xid, self.tree.zxid, *outcome))

    def _read(self, client: Client, request: tuple[Any, ...]) -> tuple[Any, Exception | None]:
        match request:
            case ("ping",):
                return None, None
            case ("unwatch", path, children):
                there = client in self.tree.watches.get((path, children), ())
                self.tree.unwatch(client, path, children)
                return (True, None) if there else (None, EXCEPTIONS[_NO_WATCHER]())
            case (kind, path, watch):
                try:
                    return self.tree.read(client, kind, path, watch), None
                except NoNode as error:
                    return None, error
        raise AssertionError(request)
