"""A network of the run's own, in which links between servers can be cut. Linux, root only.

The calling thread moves into a new network namespace that has nothing but loopback, and so does
all that it starts from then on: servers, proxies, workers. Nothing is left when the last has ended.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock_chaos.server import Server

_CLONE_NEWNET: Final = 0x40000000
_TABLE: Final = "inet chaos"


def missing() -> str | None:
    """Return what stands in the way of a network of one's own here, or None."""
    if not sys.platform.startswith("linux"):
        return "not Linux"
    if os.geteuid() != 0:
        return "not root"
    programs = [name for name in ("ip", "nft", "ss") if shutil.which(name) is None]
    if programs:
        return f"no {', '.join(programs)} (apt-get install iproute2 nftables)"
    try:
        with own():
            _run("nft", "add", "table", *_TABLE.split())
    except OSError as error:
        return f"network namespaces do not work: {error}"
    return None


@contextmanager
def own() -> Iterator[None]:
    """Move this thread, and all that it starts within the block, into a network of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _must(libc.unshare(_CLONE_NEWNET))
        try:
            _run("ip", "link", "set", "lo", "up")
            yield
        finally:
            _must(libc.setns(before, _CLONE_NEWNET))
    finally:
        os.close(before)


@contextmanager
def isolated(server: Server, *, mute: bool = False) -> Iterator[None]:
    """Drop all packets between a server and the others; its clients notice nothing.

    It can connect anew once it has given the links up, after `syncLimit` ticks.

    :param mute: drop only those that it sends
    """
    table = f"{_TABLE}_mute" if mute else _TABLE
    rules = [
        f"tcp sport {source} tcp dport {target} drop"
        for local, remote in _links_to_others(server)
        for source, target in [(local, remote)] + [(remote, local)] * (not mute)
    ]
    chain = ["chain input {", "type filter hook input priority 0", *rules, "}"]
    _run("nft", "-f", "-", text="\n".join([f"table {table} {{", *chain, "}", ""]))
    try:
        yield
    finally:
        _run("nft", "delete", "table", *table.split())


def _links_to_others(server: Server) -> list[tuple[str, str]]:
    """Return the local and the remote port of each connection of a server, but for clients'."""
    listed = _run("ss", "-Htnp", "state", "established")
    links = re.findall(rf":(\d+) +\S+:(\d+) .*\bpid={server.pid}\b", listed)
    return [(local, remote) for local, remote in links if int(local) != server.port]


def _run(*command: str, text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout


def _must(status: int) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
