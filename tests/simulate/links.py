"""Links between hosts, and the TCP connections over them.

A connection carries what is sent in its order. What a blocked link does not carry waits, and
arrives when the link works again, unless the receiver has closed the connection by then: a sender
that has given up is no reason for its kernel not to deliver.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from .world import Host, World

#: What the other end receives when one is closed.
END: Final = ("end",)
#: The usual delay of a message, and how much longer it may take, in seconds.
DELAY, JITTER = 0.0005, 0.002
#: How long it takes at most until what was lost is sent again, in seconds.
AGAIN = 0.4


class Links:
    """All links, each in two directions, which work alike unless a fault says otherwise."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._blocked: dict[tuple[Host, Host], int] = {}
        self._slow: dict[tuple[Host, Host], float] = {}
        self.connections: dict[Connection, None] = {}

    def works(self, one: Host, other: Host) -> bool:
        """Whether the links between two hosts work, in both directions."""
        return (one, other) not in self._blocked and (other, one) not in self._blocked

    def block(self, sender: Host, receiver: Host) -> None:
        """Carry nothing in this direction; may be repeated, and takes as many `unblock`."""
        link = sender, receiver
        self._blocked[link] = self._blocked.get(link, 0) + 1
        self.world.say("link", sender, "to", receiver, "is blocked")

    def unblock(self, sender: Host, receiver: Host) -> None:
        """Carry messages again, and those that were lost, too."""
        link = sender, receiver
        self._blocked[link] -= 1
        if self._blocked[link]:
            return
        del self._blocked[link]
        self.world.say("link", sender, "to", receiver, "works again")
        for connection in list(self.connections):
            connection.send_again(link)

    def slow_down(self, sender: Host, receiver: Host, *, seconds: float) -> None:
        """Take so many seconds longer for each message; 0 for none."""
        self._slow[sender, receiver] = seconds
        self.world.say("link", sender, "to", receiver, f"takes {seconds:.3f} s longer")

    def delay(self, link: tuple[Host, Host]) -> float | None:
        """Return the seconds that a message takes, None for a blocked link."""
        if link in self._blocked:
            return None
        return DELAY + self.world.random.random() * JITTER + self._slow.get(link, 0.0)

    def close_all(self, host: Host) -> None:
        """Close the connections of a host that has died."""
        for connection in list(self.connections):
            for end in (0, 1):
                if connection.hosts[end] is host:
                    connection.close(end)

    def reset(self, one: Host, other: Host) -> None:
        """End the connections between two hosts at once, at both ends."""
        for connection in list(self.connections):
            if set(connection.hosts) == {one, other}:
                connection.reset()


class Connection:
    """A TCP connection: each end has a host, and a function that takes what arrives there."""

    def __init__(self, links: Links, hosts: tuple[Host, Host]) -> None:
        self._links = links
        self.hosts = hosts
        self.take: list[Callable[[Any], None]] = [_ignore, _ignore]
        self.closed = [False, False]
        #: By the sender's end: when the last message arrives, and what a blocked link has held up.
        self._last = [0.0, 0.0]
        self._held: list[deque[Any]] = [deque(), deque()]
        links.connections[self] = None

    def send(self, end: int, message: Any) -> None:
        """Send a message from one end."""
        if not self.closed[end]:
            self._carry(end, message)

    def close(self, end: int) -> None:
        """Close one end; the other one hears of it after all that was sent before."""
        if not self.closed[end]:
            self.closed[end] = True
            self._carry(end, END)
            self._forget()

    def reset(self) -> None:
        """End it at once: nothing that is under way arrives."""
        for end in (0, 1):
            if not self.closed[end]:
                self.closed[end] = True
                self.hosts[end].now(self, self.take[end], END)
        self._held = [deque(), deque()]
        self._forget()

    def send_again(self, link: tuple[Host, Host]) -> None:
        """Deliver what a blocked link has held up."""
        for end in (0, 1):
            if (self.hosts[end], self.hosts[1 - end]) == link and self._held[end]:
                held, self._held[end] = self._held[end], deque()
                later = self._links.world.random.random() * AGAIN
                for message in held:
                    self._carry(end, message, later)

    def _carry(self, end: int, message: Any, later: float = 0.0) -> None:
        world, held = self._links.world, self._held[end]
        delay = self._links.delay((self.hosts[end], self.hosts[1 - end]))
        if held or delay is None:
            held.append(message)
            return
        at = self._last[end] = max(self._last[end], world.time + delay + later)
        world.after(at - world.time, self._arrive, 1 - end, message)

    def _arrive(self, end: int, message: Any) -> None:
        if not self.closed[end]:
            self.hosts[end].now(self, self._take, end, message)
        elif message is not END and not self.closed[1 - end]:  # the kernel refuses it
            self._carry(end, END)

    def _take(self, end: int, message: Any) -> None:
        if not self.closed[end]:
            self.take[end](message)

    def _forget(self) -> None:
        if all(self.closed):
            self._links.connections.pop(self, None)


def _ignore(message: Any) -> None:
    """Nobody is there yet."""
