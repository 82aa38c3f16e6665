"""Asks the servers of ``HOSTS`` one by one: which answer, and which of them leads.

It sends ``srvr``, the only one of ZooKeeper's four-letter words that is allowed by default. A
server that refuses the word is reachable, and its role is unknown.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured

from distlock.text import printable

from .credentials import tls_context
from .settings import EMBEDDED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.engine.configuration import Configuration

_FACT = re.compile(r"^(Zookeeper version|Mode|Connections): *([^,\r\n]*)", re.MULTILINE)
_TICK = re.compile(r"^tickTime=(\d+)", re.MULTILINE)
_NO_QUORUM = "not currently serving requests"
#: The bytes read of an answer; the answer to ``srvr`` has a few lines.
_READ = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One server, as `doctor` shows it.

    :ivar address: as in ``HOSTS``, without credentials
    :ivar reachable: whether it accepted a connection
    :ivar role: ``leader``, ``follower``, ``observer`` or ``standalone``; empty if
        unknown
    :ivar serving: False if it reports that it serves nobody, for want of a quorum
    :ivar version: such as ``3.8.0-…``, empty if unknown
    :ivar seconds: the time that its answer took
    :ivar error: the reason why it could not be reached
    """

    address: str
    reachable: bool = False
    role: str = ""
    serving: bool = True
    version: str = ""
    seconds: float = 0.0
    error: str = ""


def hosts(conf: Configuration) -> str:
    """Return ``HOSTS``, or the address of the embedded server, which may change; start that."""
    if conf.hosts != EMBEDDED:
        return conf.hosts
    from distlock.embedded import shared  # noqa: PLC0415 - for development only

    try:
        return shared.address()
    except OSError as error:
        raise ImproperlyConfigured(
            f"DISTLOCK[{conf.alias!r}]['HOSTS'] cannot be {conf.hosts!r} here: {error}"
        ) from error


def servers(conf: Configuration) -> list[str]:
    """Return the servers of `hosts` as ``host:port``, without the chroot."""
    return hosts(conf).partition("/")[0].split(",")


def members(conf: Configuration, timeout: float = 1.0) -> list[Member]:
    """Ask each server of ``HOSTS``, all at the same time."""
    addresses = servers(conf)
    tls = tls_context(conf)
    with ThreadPoolExecutor(len(addresses), thread_name_prefix="distlock-ensemble") as pool:
        return list(pool.map(lambda address: _member(address, tls, timeout), addresses))


def tick(conf: Configuration, timeout: float = 1.0) -> float | None:
    """Return the longest ``tickTime`` of those servers whose whitelist has ``conf``, in seconds."""
    tls = tls_context(conf)
    ticks: list[float] = []
    for address in servers(conf):
        with suppress(OSError, UnicodeError), _stream(address, tls, timeout) as stream:
            told = _TICK.search(_ask(stream, b"conf", time.monotonic() + timeout))
            ticks += [int(told[1]) / 1000] if told else []
    return max(ticks, default=None)


def _member(address: str, tls: ssl.SSLContext | None, timeout: float) -> Member:
    started = time.monotonic()
    reachable, said, error = False, "", ""
    try:
        with _stream(address, tls, timeout) as stream:
            reachable = True
            said = _ask(stream, b"srvr", started + timeout)
    except (OSError, UnicodeError) as failure:
        # It may have accepted and not answered: its role is unknown.
        reachable = reachable or isinstance(failure, ssl.SSLError)
        error = printable(str(failure) or type(failure).__name__)
    facts = dict(_FACT.findall(said))
    return Member(
        address=address,
        reachable=reachable,
        role=printable(facts.get("Mode", "").strip()),
        serving=_NO_QUORUM not in said,
        version=printable(facts.get("Zookeeper version", "").strip()),
        seconds=time.monotonic() - started,
        error=error,
    )


@contextmanager
def _stream(address: str, tls: ssl.SSLContext | None, timeout: float) -> Iterator[socket.socket]:
    host, port = host_and_port(address)
    with socket.create_connection((host, port), timeout) as connection:
        stream = tls.wrap_socket(connection, server_hostname=host) if tls else connection
        with stream:
            yield stream


def _ask(stream: socket.socket, word: bytes, deadline: float) -> str:
    stream.sendall(word)
    said = b""
    while len(said) < _READ:
        stream.settimeout(max(deadline - time.monotonic(), 0.001))
        some = stream.recv(_READ)
        if not some:
            break
        said += some
    return said.decode(errors="replace")


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of a server's address in ``HOSTS``."""
    host, colon, port = address.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = address, "2181"
    return host.strip("[]"), int(port)
