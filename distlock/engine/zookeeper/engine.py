"""ZooKeeper as an engine; `distlock.engine.protocol.Engine` tells of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from distlock.engine import kazoo
from distlock.engine.asking import Asking
from distlock.engine.deadline import TICKS
from distlock.engine.errors import NoAuth, NoNode, TimeUp
from distlock.engine.hosts import EMBEDDED
from distlock.engine.protocol import Finding, failure, ok, warning
from distlock.keys.limits import LEAST_TICKS, LONGEST_MESSAGE
from distlock.text import clipped, secret

from . import ensemble
from .client import Client
from .settings import ABOUT, chroot
from .shared_client import SharedClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.engine.protocol import Configuration

#: The number of nodes whose ACLs are checked.
_ACLS: Final = 1000


client = Client


def lend(client: Any, conf: Configuration) -> kazoo.KazooClient:
    """Return kazoo's client on the same session, once the server has taken the credentials."""
    return client.shared or SharedClient(client, conf)


def shown(conf: Configuration) -> str:
    return f"{EMBEDDED}; {ABOUT}" if conf.hosts == EMBEDDED else conf.hosts


@secret
def report(conf: Configuration, session_id: int, password: bytes) -> dict[str, Any]:
    return {
        "alias": conf.alias,
        "session": session_id,
        "password": password.hex(),
        "timeout": conf.session_timeout,
        "servers": [ensemble.host_and_port(server) for server in ensemble.servers(conf)],
        "tls": conf.tls and dict(conf.tls),
        # No SASL: by default, a server lets any client that has the password end a session.
        "auth": [pair for pair in conf.auth if pair[0] != "sasl"],
    }


# --- what `doctor` looks at ----------------------------------------------------------------------


def servers(conf: Configuration, timeout: float) -> tuple[bool, list[Finding]]:
    found = ensemble.members(conf, timeout)
    reachable = any(one.level != "error" for one in found)
    if reachable:
        found = [one._replace(level="warning") if one.level == "error" else one for one in found]
    if len(found) > 1 and any(one.message.startswith("standalone") for one in found):
        message = (
            "Several servers, and one of them stands alone: they do not share one tree, so a lock "
            "on one does not exclude anybody on another."
        )
        advice = "Join them to one ensemble (server.1=… in zoo.cfg), or name one server in HOSTS."
        found.append(failure("ensemble", message, advice))
    if conf.max_node_bytes > LONGEST_MESSAGE:
        message = (
            f"MAX_NODE_BYTES = {conf.max_node_bytes} is more than a server reads unless "
            "jute.maxbuffer was raised: the end of a process that holds so many locks would take "
            "the ensemble down (ZOOKEEPER-4306)."
        )
        advice = "Raise jute.maxbuffer on all servers well beyond it, or lower the setting."
        found.append(warning("nodes", message, advice))
    return reachable, found


def looks(conf: Configuration, timeout: float, seconds: float) -> Iterator[Finding]:
    deadline = time.monotonic() + seconds
    yield _ticks(conf, timeout, seconds)
    yield _acl(conf, deadline - time.monotonic())
    if conf.acl != "open" and conf.hosts != EMBEDDED:
        yield _stranger(conf, deadline - time.monotonic())


def _ticks(conf: Configuration, timeout: float, seconds: float) -> Finding:
    """Compare the session timeout with the servers' tick: see `engine.deadline`."""
    tick, source = ensemble.tick(conf, min(seconds, 2.0)), "tickTime"
    if tick is None:
        shortest = _shortest_timeout(conf, timeout, seconds)
        tick = shortest / LEAST_TICKS
        source = f"half of the shortest timeout granted, {shortest:g} s"
    if not tick:
        return warning(
            "ticks",
            "The servers' tickTime is not known.",
            f"Look it up in zoo.cfg: the session timeout, {timeout:g} s, must be at least {TICKS} "
            "ticks, or STRICT must be set.",
        )
    message = f"the session timeout is {timeout / tick:.3g} ticks of {tick:g} s ({source})"
    if timeout >= (LEAST_TICKS if conf.strict else TICKS) * tick - 0.001:
        return ok("ticks", message)
    trusted = timeout * 2 / 3
    return warning(
        "ticks",
        f"{message}, and {TICKS} are needed. A leader that is cut off may answer for a tick after "
        "its followers have left it, and a hold is trusted for two thirds of the timeout after "
        f"that: {tick:g} s + {trusted:.3g} s = {tick + trusted:.3g} s. The next leader may give "
        f"the lock away after {timeout:g} s.",
        f"Set SESSION_TIMEOUT to {TICKS * tick:g} or more, or STRICT to True. A tick that was "
        "found by the shortest timeout is wrong where zoo.cfg sets minSessionTimeout.",
    )


def _shortest_timeout(conf: Configuration, timeout: float, seconds: float) -> float:
    """Return the least session timeout that the servers grant, in seconds; 0 if unknown."""
    if timeout > conf.session_timeout:
        return timeout
    short = replace(conf, session_timeout=0.5)  # less than any two ticks
    with closing(Asking(short, seconds)) as asking:
        return asking.client.session_timeout if asking.connected.wait(asking.left) else 0.0


def _acl(conf: Configuration, seconds: float) -> Finding:
    if conf.acl != "open":
        return _effective_acl(conf, seconds)
    message = "open: whoever reaches the servers may break every lock"
    if conf.auth or conf.tls is not None:
        return warning("ACL", f"{message}, although there are credentials", 'Set ACL to "creator".')
    return ok("ACL", message)


def _effective_acl(conf: Configuration, seconds: float) -> Finding:
    """Look for nodes that everyone may change, or that we may not read.

    A node may be deleted by who has DELETE on its parent, so parents count at every level. Source:
    ``PrepRequestProcessor.pRequest2Txn``.
    """
    level = [chroot(conf.hosts) + conf.namespace]
    number, wrong, unread = 0, list[str](), list[str]()
    with closing(Asking(conf, seconds)) as asking:
        while level and number < _ACLS:
            number += len(level)
            acls = asking.outcomes(*map(kazoo.GetACL, level))
            lists = asking.outcomes(*map(asking.client.listing, level))
            told = list(zip(level, acls, lists, strict=True))
            wrong += [path for path, acl, _ in told if isinstance(acl, NoAuth) or _is_open(acl)]
            unread += [path for path, *both in told if any(isinstance(x, TimeUp) for x in both)]
            below = ((path, names) for path, _, names in told if isinstance(names, list))
            level = [f"{path}/{name}" for path, names in below for name in names]
            level = level[: _ACLS - number]
    if unread and not wrong:
        return warning(
            "ACL",
            f"{len(unread)} of {number} nodes could not be read in time, so they may be open.",
            "Look again with a longer --budget.",
        )
    if not wrong:
        return ok("ACL", f"none of {number} nodes is open to everyone")
    return warning(
        "ACL",
        f"{len(wrong)} of {number} nodes are open to everyone, or closed to this user, "
        f"{clipped(wrong[0])} among them: nodes keep the ACL that they were created with.",
        "Set their ACL: docs/how-to/least-privilege.md has a recipe.",
    )


def _is_open(acl: Any) -> bool:
    return isinstance(acl, tuple) and any(one.id.scheme == "world" for one in acl[0])


def _stranger(conf: Configuration, seconds: float) -> Finding:
    """Try a read without credentials.

    A client that may send requests may end any session: its password follows from its id, and ids
    are handed out in order. No ACL is asked. Source: ``ZooKeeperServer.generatePasswd`` and
    ``reopenSession``, ``SessionTrackerImpl.createSession``; 3.5 to 3.9.
    """
    identity = ("cert", "key", "key_password")
    tls = conf.tls and {name: conf.tls[name] for name in conf.tls if name not in identity}
    stranger = Asking(replace(conf, auth=(), tls=tls), min(seconds, conf.connect_timeout))
    with closing(stranger) as asking:
        (root,) = asking.outcomes(asking.client.reading(chroot(conf.hosts) + conf.namespace))
    if not isinstance(root, tuple | NoNode | NoAuth):
        return ok("strangers", "a client without credentials gets no answer")
    reads_too = ", and reads" if isinstance(root, tuple) else ""
    return warning(
        "strangers",
        f"a client without credentials is served{reads_too}. Any such "
        "client can end the sessions of others, and free their locks, whatever ACL says.",
        "Close the network, require client certificates (ssl.clientAuth=need, and no clientPort), "
        "or set enforce.auth.enabled and enforce.auth.schemes (ZooKeeper 3.7 and newer).",
    )


def advice(conf: Configuration, right: str) -> str:
    roles = isinstance(conf.acl, Mapping)
    return (
        f"{'Of the roles in ACL, only app may acquire locks. ' if roles else ''}Give this client "
        f"the permission {right.upper()}, or let whoever made the nodes change their ACL. distlock "
        "needs ZooKeeper 3.5.3 or newer."
    )
