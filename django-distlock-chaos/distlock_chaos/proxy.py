"""A TCP proxy on loopback that breaks a link on demand, for synchronous code."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from distlock_chaos.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from typing_extensions import Self

Direction = Literal["both", "to_server", "to_client"]

_ANSWER_TIMEOUT = 5.0


class TcpProxy:
    """Listens on `address` and passes everything on to `host`:`port`, until told otherwise.

    A black hole loses nothing: as with real packets lost, what was sent into it
    arrives once the link heals, and neither side learns that the other has gone.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        listening = _listen_on_a_free_port()
        self.port: int = listening.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="tcp-proxy", daemon=True
        )
        self._link = _Link(self._target, listening)

    def __enter__(self) -> Self:
        self._thread.start()
        self.pass_through()
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._link.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_ANSWER_TIMEOUT)
        self._loop.close()

    @property
    def connections(self) -> int:
        """How many client connections are open."""
        return len(self._link.connections)

    def pass_through(self) -> None:
        """Heal everything: listen, forward both ways, without a delay."""
        self._do(self._link.open_gates)
        self._run(self._link.listen())

    restore = pass_through

    def cut(self) -> None:
        """Close every connection and refuse new ones."""
        self._run(self._link.refuse())

    def drop(self) -> None:
        """Close every connection; new ones are accepted."""
        self._run(self._link.drop())

    def black_hole(self, direction: Direction = "both") -> None:
        """Keep connections open and accept new ones, but forward nothing in `direction`."""
        self._do(lambda: self._link.shut_gates(direction))

    def hold_back(self) -> None:
        """Keep what the present connections bring to the server; new ones pass.

        `pass_through` lets it go, also that of connections which the client has closed since.
        """
        self._do(self._link.hold_back)

    def lead_to(self, port: int) -> None:
        """Pass new connections on to another port; the present ones stay where they are."""
        self._do(lambda: self._link.lead_to(port))

    def delay(self, seconds: float) -> None:
        """Forward everything so much later, each way."""
        self._do(lambda: self._link.set_delay(seconds))

    def _do(self, action: Callable[[], None]) -> None:
        """Run `action` in the proxy's thread and return when it is done."""

        async def run() -> None:
            action()

        self._run(run())

    def _run(self, steps: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(steps, self._loop).result(_ANSWER_TIMEOUT)


def _listen_on_a_free_port() -> socket.socket:
    """Keep the port from the first look on: another process may want it too."""
    for _ in range(20):
        with suppress(OSError):
            return socket.create_server(("127.0.0.1", free_ports(1)[0]))
    return socket.create_server(("127.0.0.1", 0))


class _Link:
    """The proxy's state; touched in the proxy's thread only."""

    def __init__(self, target: tuple[str, int], listening: socket.socket) -> None:
        self._target = target
        self._port = listening.getsockname()[1]
        self._listening: socket.socket | None = listening
        self._delay = 0.0
        self._gates = {"to_server": asyncio.Event(), "to_client": asyncio.Event()}
        #: Those of connections whose bytes are held back.
        self._held_back: list[asyncio.Event] = []
        self._server: asyncio.Server | None = None
        self.connections: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        if self._server is None:
            listening = self._listening or socket.create_server(("127.0.0.1", self._port))
            self._listening = None
            self._server = await asyncio.start_server(self._accept, sock=listening)

    def open_gates(self) -> None:
        self._delay = 0.0
        for gate in (*self._gates.values(), *self._held_back):
            gate.set()
        self._held_back.clear()

    def shut_gates(self, direction: Direction) -> None:
        for name, gate in self._gates.items():
            if direction in {name, "both"}:
                gate.clear()

    def hold_back(self) -> None:
        gate, self._gates["to_server"] = self._gates["to_server"], asyncio.Event()
        self._gates["to_server"].set()
        gate.clear()
        self._held_back.append(gate)

    def lead_to(self, port: int) -> None:
        self._target = (self._target[0], port)

    def set_delay(self, seconds: float) -> None:
        self._delay = seconds

    async def refuse(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            for listening in server.sockets:
                asyncio.get_running_loop().remove_reader(listening)
            # A client that was accepted just now must get its transport before the server closes;
            # otherwise asyncio forgets to close that socket.
            await asyncio.sleep(0)
            server.close()
        await self.drop()

    async def drop(self) -> None:
        """Return once the server has been told: it must not answer into a dead connection."""
        for connection in (dropped := [*self.connections]):
            connection.cancel()
        if dropped:
            await asyncio.wait(dropped)

    async def close(self) -> None:
        await self.refuse()
        # A task whose client was accepted just now must begin in order to close its sockets.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.sleep(0)
            await self.drop()
            await asyncio.wait(others, timeout=0.1)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is None:
            raise RuntimeError("asyncio calls this in a task of its own.")
        self.connections.add(task)
        # asyncio does so for the connections that it makes. Or else the second of two answers that
        # follow each other waits for 40 ms.
        accepted = writer.get_extra_info("socket")
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A cancelled connection has been dropped on purpose: nobody is to be told.
        with suppress(OSError, asyncio.CancelledError):
            try:
                if self._server is not None:  # or else there was a cut since it was accepted
                    await self._join(reader, writer)
            finally:
                self.connections.discard(task)
                writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._gates["to_server"].wait()
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        pumps = [
            asyncio.ensure_future(self._pump(reader, server_writer, self._gates["to_server"])),
            asyncio.ensure_future(self._pump(server_reader, writer, self._gates["to_client"])),
        ]
        try:
            await asyncio.gather(*pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            server_writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        # Reading goes on while earlier chunks wait, or a delay would add up from chunk to chunk.
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=64)

        async def read() -> None:
            data = b"-"
            while data:
                data = await reader.read(65536)
                await chunks.put((loop.time() + self._delay, data))

        reading = asyncio.ensure_future(read())
        try:
            data = b"-"
            while data:
                due, data = await chunks.get()
                await asyncio.sleep(due - loop.time())
                await gate.wait()
                if data:
                    writer.write(data)
                    await writer.drain()
            writer.write_eof()
        finally:
            reading.cancel()
