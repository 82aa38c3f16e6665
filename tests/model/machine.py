"""The waiting line, the session and its deadline as a small machine: every step it can take next.

Clients contend for one key. There are two servers: a leader, and a follower that may lag.
Nothing here knows kazoo, threads or time; what could happen at any moment is one of `steps`:

- a client joins, leaves (a release, a time-out, or a cancel, whatever it is in the middle of),
  takes an answer, notices that its connection is gone, or connects to either server;
- a server does a client's next request (one connection, first in first out), the follower catches
  up by one transaction, the leader marks a silent session as expired, and deletes its nodes later;
- a tick of time passes.

A paused client is one that takes no step while ticks pass; a partitioned follower is one that
serves reads and neither catches up nor forwards. A lost reply is a request that was done, and then
a connection that is noticed to be gone. A request that was not done by then never is: the leader
refuses it once the session has moved to another connection.

Simplified, without hiding what is looked for: create and list are one request, as they are sent
back to back; setting a watch takes no time, since a node that is gone by then leads to the same
step as its deletion; find (list and read) is one request; a client that has left does not come
again. Liveness is not looked at, nor is that a lapsed hold stays lost (`SessionDeadline.epoch`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.model.world import Answer, Client, Node, Nodes, Request, World

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Ticks after the last word of a client that the leader keeps its session for certain.
SESSION_TICKS = 3
#: Ticks of the deadline: two thirds, `SessionDeadline.renew`.
DEADLINE_TICKS = 2


@dataclass(frozen=True, kw_only=True)
class Guards:
    """What keeps the line safe, and the line of code that does it. False takes it out."""

    #: CURATOR-604: ``Place.standing`` in `queue._look_again`, `_look` and `Place.lost`.
    only_nodes_of_this_session: bool = True
    #: CURATOR-498: ``Node(path, stat.czxid, stat.ephemeralOwner)`` in `queue._found`.
    owner_of_found_node_is_read: bool = True
    #: `place._watched_changed` calls `_look_again`, whatever happened.
    look_again_when_predecessor_goes: bool = True
    #: ``sent_at`` in `SessionRequests.create_contender`, taken before the request is sent.
    deadline_from_send_time: bool = True
    #: ``session.deadline.remaining > 0`` in `Place.lost`, which every check asks.
    check_reads_the_clock: bool = True
    #: `client.proof` is a sync or a write, which only the leader answers.
    heartbeat_reaches_the_leader: bool = True
    #: ``sync=True`` in `queue._recover`.
    sync_after_lost_reply: bool = True
    #: ``if self._left`` in `queue._stand_on`.
    late_create_is_deleted: bool = True
    #: CURATOR-678: `session._deleted` sends again after a lost connection.
    delete_is_sent_again: bool = True


class Machine:
    """All steps of a world under some guards, and what must be true in each world."""

    def __init__(self, guards: Guards) -> None:
        self.guards = guards

    # --- what must be true -----------------------------------------------------------------------

    def believes(self, client: Client) -> bool:
        """Whether `Hold.check` would pass now."""
        guards = self.guards
        return (
            client.state == "holding"
            and not client.lost
            and (client.deadline > 0 or not guards.check_reads_the_clock)
        )

    def violation(self, world: World) -> str | None:
        """Return what is wrong in this world."""
        holders = [n for n, client in enumerate(world.clients) if self.believes(client)]
        if len(holders) > 1:
            return f"{' and '.join(map(_name, holders))} hold at the same time"
        for number in holders:
            node = world.clients[number].node
            if node and node.czxid < world.highest:
                return f"{_name(number)} holds with token {node.czxid} after {world.highest}"
        for node in world.view("leader"):
            client = world.clients[node.client]
            alive = node.session == client.session and not client.expired
            known = node == client.node or node in client.deletes
            to_be_found = client.awaits_create and node.attempt == client.attempt
            if alive and not known and not to_be_found:
                return f"{_name(node.client)} has forgotten its node {node.czxid}"
        return None

    # --- what can happen -------------------------------------------------------------------------

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield everything that can happen next."""
        for number, client in enumerate(world.clients):
            if client.state == "idle":
                for server in world.servers:
                    yield self._begin(world, number, client, server)
                break  # idle clients are alike: they come in order
            does, meets = self._client_does, self._client_meets
            for what, then in (*does(world, number, client), *meets(world, number, client)):
                yield f"{_name(number)} {what}", then
        for session in world.expiring:
            whose = f"{_name(session[0])}'s old session"
            yield f"the leader deletes the nodes of {whose}", self._reap(world, session)
        if len(world.views) > 1:
            yield "the follower catches up by one", world._replace(views=world.views[1:])
        if world.ticks:
            yield "a tick passes", self._tick(world)

    def _begin(self, world: World, number: int, me: Client, server: str) -> tuple[str, World]:
        me = me._replace(server=server, session=1, seen=world.zxid_of(server))
        what = f"{_name(number)} asks the {server} for a place"
        return what, world.with_client(number, self._join(me))

    def _client_does(self, world: World, number: int, me: Client) -> Iterator[tuple[str, World]]:
        if me.state != "gone" and not me.left:
            if world.leaves:
                left = world._replace(leaves=world.leaves - 1)
                yield "leaves", left.with_client(number, self._leave(me))
            if me.server and not me.awaits_create and me.deadline < DEADLINE_TICKS and not me.beats:
                yield "sends a heartbeat", world.with_client(number, me.sends("heartbeat"))
        if me.answers:
            yield f"takes the answer: {me.answers[0].request.kind}", self._take(world, number, me)
        if me.state == "waiting" and me.server and not _has(world.view(me.server), me.watched):
            yield "hears that the node ahead is gone", self._woken(world, number, me)
        if me.state == "holding" and not me.lost and not me.deadline:
            yield (
                "notices the end of its session deadline",
                world.with_client(number, me._replace(lost=True)),
            )

    def _client_meets(self, world: World, number: int, me: Client) -> Iterator[tuple[str, World]]:
        if me.requests and me.server and not me.expired:
            yield f"is served: {me.requests[0].kind}", self._serve(world, number, me)
        if me.server and (world.cuts or me.expired):
            cuts = world.cuts if me.expired else world.cuts - 1
            yield "loses its connection", self._cut(world, number, me)._replace(cuts=cuts)
        if not me.server and (me.state != "gone" or me.deletes):
            for server in world.servers:
                if me.expired or world.zxid_of(server) >= me.seen:
                    yield f"connects to the {server}", self._connect(world, number, me, server)
        if me.silence >= SESSION_TICKS and not me.expired:
            session = (number, me.session)
            marked = world._replace(expiring=(*world.expiring, session))
            yield "is expired by the leader", marked.with_client(number, me._replace(expired=True))

    def _tick(self, world: World) -> World:
        def older(request: Request) -> Request:
            timed = request.kind in ("join", "heartbeat") and request.age < DEADLINE_TICKS
            return request._replace(age=request.age + 1) if timed else request

        clients = []
        for me in world.clients:
            if me.state == "idle" or (me.state == "gone" and not me.deletes):
                clients.append(me)
                continue
            deadline = max(me.deadline - 1, 0)
            over = me.state == "holding" and not deadline and self.guards.check_reads_the_clock
            clients.append(
                me._replace(
                    deadline=deadline,
                    lost=me.lost or over,
                    requests=tuple(map(older, me.requests)),
                    answers=tuple(a._replace(request=older(a.request)) for a in me.answers),
                    silence=min(me.silence + 1, SESSION_TICKS),
                )
            )
        return world._replace(clients=tuple(clients), ticks=world.ticks - 1)

    # --- the servers -----------------------------------------------------------------------------

    def _serve(self, world: World, number: int, me: Client) -> World:
        request = me.requests[0]
        synced = request.kind == "find" and self.guards.sync_after_lost_reply
        proof = request.kind == "heartbeat" and self.guards.heartbeat_reaches_the_leader
        if request.kind in ("join", "delete") or synced or proof or me.server == "leader":
            world, me = world.caught_up(me.server), me._replace(silence=0)
        value: Any = None
        if request.kind == "join":
            value = Node(world.zxid + 1, number, me.session, me.attempt)
            world = world.writes((*world.view("leader"), value)).caught_up(me.server)
        elif request.kind == "delete":
            nodes = world.view("leader")
            world = world.writes(tuple(n for n in nodes if n != request.about))
            world = world.caught_up(me.server)
        view = world.view(me.server)
        if request.kind == "find":
            value = next((n for n in view if n[1] == number and n.attempt == me.attempt), None)
        elif request.kind == "list":
            value = view
        elif request.kind == "join":
            value = (value, view)
        answer = Answer(request, value, world.zxid_of(me.server))
        me = me._replace(requests=me.requests[1:], answers=(*me.answers, answer))
        return world.with_client(number, me)

    def _reap(self, world: World, session: tuple[int, int]) -> World:
        expiring = tuple(other for other in world.expiring if other != session)
        nodes = tuple(n for n in world.view("leader") if (n.client, n.session) != session)
        return world.writes(nodes)._replace(expiring=expiring)

    # --- the client's session --------------------------------------------------------------------

    def _cut(self, world: World, number: int, me: Client) -> World:
        deletes = me.deletes if self.guards.delete_is_sent_again else ()
        return world.with_client(
            number, me._replace(server="", requests=(), answers=(), deletes=deletes)
        )

    def _connect(self, world: World, number: int, me: Client, server: str) -> World:
        """Go on with the same session or a new one, and run the steps that waited for it."""
        me = me._replace(server=server, silence=0)
        if me.expired:
            world = world.caught_up(server)
            mine = self.guards.only_nodes_of_this_session
            me = me._replace(
                session=me.session + 1, expired=False, deletes=(), lost=me.lost or mine
            )
        for node in me.deletes:
            me = me.sends("delete", node)
        if me.awaits_create:
            me = me._replace(state="finding").sends("find")
        elif me.state in ("looking", "waiting", "proving"):
            me = self._look_again(me)
        return world.with_client(number, me._replace(seen=world.zxid_of(server)))

    # --- the client's place in line --------------------------------------------------------------

    def _join(self, me: Client) -> Client:
        if me.left:
            return me._replace(state="gone", node=None)
        me = me._replace(state="joining", attempt=me.attempt + 1, node=None)
        return me.sends("join")

    def _leave(self, me: Client) -> Client:
        me = me._replace(left=True, watched=0)
        if me.awaits_create:
            return me  # the answer to the create goes on
        return self._delete(me)._replace(state="gone")

    def _delete(self, me: Client) -> Client:
        if me.node is None or me.node.session != me.session:
            return me._replace(node=None)  # it went with its session
        me = me._replace(deletes=(*me.deletes, me.node), node=None)
        return me.sends("delete", me.deletes[-1]) if me.server else me

    def _take(self, world: World, number: int, me: Client) -> World:
        (kind, about, age), value, zxid = me.answers[0]
        me = me._replace(answers=me.answers[1:], seen=max(me.seen, zxid))
        if kind in ("join", "heartbeat"):
            late = age if self.guards.deadline_from_send_time else 0
            me = me._replace(deadline=max(me.deadline, DEADLINE_TICKS - late))
        if kind == "join":
            me = self._stand_on(me, value[0])
            return self._look(world, number, me, value[1])
        if kind == "list" and me.state == "looking":
            return self._look(world, number, me, value)
        if kind == "find":
            if value is None:
                me = self._join(me)
            else:
                if not self.guards.owner_of_found_node_is_read:
                    value = value._replace(session=me.session)
                me = self._look_again(self._stand_on(me, value))
        if kind == "heartbeat" and me.state == "proving":
            me = self._look_again(me)
        if kind == "delete":
            me = me._replace(deletes=tuple(n for n in me.deletes if n != about))
        return world.with_client(number, me)

    def _stand_on(self, me: Client, node: Node) -> Client:
        me = me._replace(node=node, state="gone" if me.left else "looking")
        return self._delete(me) if me.left and self.guards.late_create_is_deleted else me

    def _look_again(self, me: Client) -> Client:
        if me.left:
            return me
        if me.node and not self._stands(me):
            return self._join(self._delete(me))
        return me._replace(state="looking", watched=0).sends("list")

    def _stands(self, me: Client) -> bool:
        mine = me.node is not None and me.node.session == me.session
        return mine or not self.guards.only_nodes_of_this_session

    def _look(self, world: World, number: int, me: Client, line: Nodes) -> World:
        if me.left:
            return world.with_client(number, me)
        if not self._stands(me) or not me.node or not _has(line, me.node.czxid):
            return world.with_client(number, self._join(self._delete(me)))
        ahead = [node.czxid for node in line if node.czxid < me.node.czxid]
        if not ahead:
            return self._grant(world, number, me)
        return world.with_client(number, me._replace(state="waiting", watched=ahead[-1]))

    def _woken(self, world: World, number: int, me: Client) -> World:
        if self.guards.look_again_when_predecessor_goes:
            return world.with_client(number, self._look_again(me))
        return self._grant(world, number, me)

    def _grant(self, world: World, number: int, me: Client) -> World:
        me = me._replace(watched=0)
        if not me.deadline:
            me = me._replace(state="proving")
            return world.with_client(number, me if me.beats else me.sends("heartbeat"))
        token = me.node.czxid if me.node else 0
        world = world._replace(highest=max(world.highest, token))
        return world.with_client(number, me._replace(state="holding", lost=False))


def _has(nodes: Nodes, czxid: int) -> bool:
    return any(node.czxid == czxid for node in nodes)


def _name(number: int) -> str:
    return "ABC"[number]
