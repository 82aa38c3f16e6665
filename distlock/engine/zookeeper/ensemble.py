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
from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured

from distlock.engine import session_reaper
from distlock.engine.hosts import EMBEDDED
from distlock.engine.protocol import Finding, failure, ok, warning
from distlock.text import printable, secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.engine.protocol import Configuration

_FACT = re.compile(r"^(Zookeeper version|Mode|Connections): *([^,\r\n]*)", re.MULTILINE)
_TICK = re.compile(r"^tickTime=(\d+)", re.MULTILINE)
_NO_QUORUM = "not currently serving requests"
#: The bytes read of an answer; the answer to ``srvr`` has a few lines.
_READ = 4096


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


def members(conf: Configuration, timeout: float) -> list[Finding]:
    """Ask each server of ``HOSTS``, all at the same time; an error is one that is not reached."""
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


def _member(address: str, tls: ssl.SSLContext | None, timeout: float) -> Finding:
    subject, started = f"server {address}", time.monotonic()
    reachable, said, error = False, "", ""
    try:
        with _stream(address, tls, timeout) as stream:
            reachable = True
            said = _ask(stream, b"srvr", started + timeout)
    except (OSError, UnicodeError) as refusal:
        # It may have accepted and not answered: its role is unknown.
        reachable = reachable or isinstance(refusal, ssl.SSLError)
        error = printable(str(refusal) or type(refusal).__name__)
    if not reachable:
        return failure(
            subject,
            f"cannot be reached: {error}.",
            "Is it running, is the port right, does a firewall stand between? Locks work as long "
            "as a majority of the ensemble does. `manage.py distlock server` runs one for "
            "development.",
        )
    if _NO_QUORUM in said:
        return warning(
            subject,
            "serves nobody: it is in touch with no majority of the ensemble.",
            "Start the other servers, or look at the network between them.",
        )
    if error:
        return warning(
            subject,
            f"accepts connections and says nothing: {error}.",
            "It hangs, or something else listens there.",
        )
    facts = {name: printable(fact.strip()) for name, fact in _FACT.findall(said)}
    if "Mode" not in facts:
        return ok(subject, "reachable; it does not tell its role (4lw.commands.whitelist)")
    took = (time.monotonic() - started) * 1000
    return ok(subject, f"{facts['Mode']}, {facts.get('Zookeeper version', '')}, {took:.0f} ms")


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


@secret
def tls_context(conf: Configuration) -> ssl.SSLContext | None:
    """Read the files of ``TLS``; raise ImproperlyConfigured if one cannot be used."""
    tls = conf.tls
    if tls is None:
        return None
    try:
        return session_reaper.tls_context(tls)
    except OSError as error:  # SSLError is one
        files = ", ".join(f"{name} {tls[name]}" for name in ("ca", "cert", "key") if name in tls)
        raise ImproperlyConfigured(
            f"DISTLOCK[{conf.alias!r}]['TLS'] cannot be used: {error}. Check the files ({files}) "
            "and key_password."
        ) from error
