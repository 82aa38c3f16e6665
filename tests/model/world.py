"""What there is in the model: clients, their requests, the nodes on two servers. All immutable."""

from __future__ import annotations

from typing import Any, NamedTuple

#: How many transactions the follower may lag behind.
MAX_LAG = 2


class Node(NamedTuple):
    czxid: int  # the place in line, and the fencing token
    client: int
    session: int  # ephemeralOwner: which session of this client, from 1 on
    attempt: int  # stands for the uuid in the name


Nodes = tuple[Node, ...]


class Request(NamedTuple):
    kind: str  # join, list, find, heartbeat, delete
    about: Any = None  # the node of a delete
    age: int = 0  # ticks since it was sent, where the deadline asks for them


class Answer(NamedTuple):
    request: Request
    value: Any
    zxid: int


class Client(NamedTuple):
    # What the client knows.
    server: str = ""  # leader or follower; none without a connection
    session: int = 0
    seen: int = 0  # the highest zxid in an answer; no server that is behind it lets the client in
    deadline: int = 0  # ticks
    state: str = "idle"  # joining, finding, looking, waiting, proving, holding, gone
    left: bool = False
    attempt: int = 0
    node: Node | None = None
    watched: int = 0  # the czxid of the node ahead
    lost: bool = False  # the hold is lost, for good
    deletes: Nodes = ()
    # What is under way.
    requests: tuple[Request, ...] = ()
    answers: tuple[Answer, ...] = ()
    # What the leader knows of the session.
    silence: int = 0  # ticks since the leader heard of it
    expired: bool = False

    def sends(self, kind: str, about: Any = None) -> Client:
        return self._replace(requests=(*self.requests, Request(kind, about)))

    @property
    def beats(self) -> bool:
        """Whether a heartbeat is under way; there is never more than one."""
        under_way = (*self.requests, *(answer.request for answer in self.answers))
        return any(request.kind == "heartbeat" for request in under_way)

    @property
    def awaits_create(self) -> bool:
        """Whether the client does not know yet what became of its create."""
        return self.state in ("joining", "finding")


class World(NamedTuple):
    clients: tuple[Client, ...]
    views: tuple[Nodes, ...] = ((),)  # the follower's first, the leader's last
    zxid: int = 0  # of the leader
    expiring: tuple[tuple[int, int], ...] = ()  # (client, session): expired, the nodes still there
    highest: int = 0  # the highest token of a holder so far
    servers: tuple[str, ...] = ("leader", "follower")
    # How often it may still happen.
    ticks: int = 0
    cuts: int = 0
    leaves: int = 0

    def with_client(self, number: int, client: Client) -> World:
        """Return the world with this client; of one that is done with all, nothing is kept."""
        if client.state == "gone" and not client.deletes:
            client = Client(state="gone", session=client.session, attempt=client.attempt)
        clients = self.clients
        return self._replace(clients=(*clients[:number], client, *clients[number + 1 :]))

    def writes(self, nodes: Nodes) -> World:
        lag = MAX_LAG if "follower" in self.servers else 0
        views = (*self.views, nodes)[-1 - lag :]
        return self._replace(views=views, zxid=self.zxid + 1)

    def view(self, server: str) -> Nodes:
        return self.views[-1 if server == "leader" else 0]

    def zxid_of(self, server: str) -> int:
        return self.zxid if server == "leader" else self.zxid - len(self.views) + 1

    def caught_up(self, server: str) -> World:
        return self if server == "leader" else self._replace(views=self.views[-1:])


def beginning(clients: int, **limits: Any) -> World:
    """Return the world of so many clients, of which nobody has asked for anything yet."""
    return World(clients=(Client(),) * clients, **limits)
