"""Finds who may touch the locks, and whether this user may: the doctor's checks of permissions."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from distlock.conf.rules import REDIS
from distlock.engine.errors import NoAuth, NodeExists, NoNode
from distlock.exceptions import LockUnavailable
from distlock.keys.znodes import LOCK, protected_prefix
from distlock.session.bulk_reads import FORBIDDEN
from distlock.session.session import Session
from distlock.text import clipped

from .finding import failure, ok, warning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from distlock.conf import Configuration
    from distlock.session.bulk_reads import Reads

    from .finding import Finding

#: The options of ``TLS`` that identify a client.
_CLIENT_CERTIFICATE: Final = ("cert", "key", "key_password")
#: The number of nodes whose ACLs are checked.
_ACLS: Final = 1000


def findings(reads: Reads) -> Iterator[Finding]:
    """Yield findings.

    :raises LockUnavailable: the connection was lost
    """
    conf = reads.session.conf
    if conf.engine != REDIS:
        yield _acl(conf, reads)
        if conf.acl != "open" and not conf.embedded:
            yield _stranger(reads)
    yield _writes(reads.session, reads)


def _acl(conf: Configuration, reads: Reads) -> Finding:
    if conf.acl != "open":
        return _effective_acl(reads)
    if not conf.auth and conf.tls is None:
        return ok("ACL", "open: whoever reaches the servers may break every lock")
    return warning(
        "ACL",
        "open, although there are credentials: whoever reaches the servers may break every lock.",
        'Set ACL to "creator".',
    )


def _effective_acl(reads: Reads) -> Finding:
    """Look for nodes that everyone may change, or that we may not read.

    A node may be deleted by who has DELETE on its parent, so parents count at every level. Source:
    ``PrepRequestProcessor.pRequest2Txn``.
    """
    paths = level = [reads.session.root]
    while level and len(paths) < _ACLS:
        below = zip(level, reads.children(level), strict=True)
        level = [
            f"{path}/{name}" for path, names in below if isinstance(names, list) for name in names
        ][: _ACLS - len(paths)]
        paths = paths + level
    wrong = [
        path
        for path, acl in zip(paths, reads.acls(paths), strict=True)
        if acl is FORBIDDEN
        or (isinstance(acl, list) and any(one.id.scheme == "world" for one in acl))
    ]
    if not wrong:
        return ok("ACL", f"none of {len(paths)} nodes is open to everyone")
    return warning(
        "ACL",
        f"{len(wrong)} of {len(paths)} nodes are open to everyone, or closed to this user, "
        f"{clipped(wrong[0])} among them: nodes keep the ACL that they were created with.",
        "Set their ACL: docs/how-to/least-privilege.md has a recipe.",
    )


def _stranger(reads: Reads) -> Finding:
    """Try a read without credentials.

    A client that may send requests may end any session: its password follows from its id, and ids
    are handed out in order. No ACL is asked. Source: ``ZooKeeperServer.generatePasswd`` and
    ``reopenSession``, ``SessionTrackerImpl.createSession``; 3.5 to 3.9.
    """
    conf = reads.session.conf
    tls = conf.tls and {
        name: conf.tls[name] for name in conf.tls if name not in _CLIENT_CERTIFICATE
    }
    stranger = Session(replace(conf, auth=(), tls=tls))
    try:
        answer = stranger.ask(stranger.read, stranger.root)
        wait([answer], min(reads.left, conf.connect_timeout))
        error = answer.exception() if answer.done() else TimeoutError()
    finally:
        stranger.close()
    if not (error is None or isinstance(error, NoAuth | NoNode)):
        return ok("strangers", "a client without credentials gets no answer")
    return warning(
        "strangers",
        f"a client without credentials is served{', and reads' if error is None else ''}. Any such "
        "client can end the sessions of others, and free their locks, whatever ACL says.",
        "Close the network, require client certificates (ssl.clientAuth=need, and no clientPort), "
        "or set enforce.auth.enabled and enforce.auth.schemes (ZooKeeper 3.7 and newer).",
    )


def _writes(session: Session, reads: Reads) -> Finding:
    """Write under the namespace as a lock does, and clean up."""

    def ask(method: Callable[..., None], *args: Any) -> Any:
        return session.call(method, *args, timeout=reads.left, key=session.root)

    def contender(prefix: str, done: Callable[..., None]) -> None:
        # A node made after the time-out ends with this session.
        session.create_contender(prefix, b"", done, lambda _: None)

    parent = f"{session.root}/@doctor-{uuid4().hex}"
    step, permission = "make a container node", "CREATE"
    try:
        ask(session.create_containers, parent)
        step = "make a lock's node"
        path, stat = ask(contender, f"{parent}/{protected_prefix()}{LOCK}")
        step, permission = "list", "READ"
        ask(session.children, parent)
        step = "read a lock's node"
        ask(session.read, path)
        step, permission = "write to a lock's node", "WRITE"
        stat = ask(session.write, path, b"", stat.version)
        step, permission = "delete a lock's node", "DELETE"
        ask(session.remove, path, stat.version)
        step = "delete an empty parent"
        with suppress(NoNode):  # the server removes it, too
            ask(session.remove, parent, -1)
    except (LockUnavailable, NoNode, NodeExists) as error:
        session.ask(session.remove, parent, -1)
        return failure(
            "permissions",
            f"It is not possible to {step} under {session.root}: {error}",
            _advice(session.conf, permission),
        )
    return ok("permissions", "container nodes, create, read, write and delete work")


def _advice(conf: Configuration, permission: str) -> str:
    if conf.engine == REDIS:
        return "The message says what the server, or the user in HOSTS, does not do."
    roles = ""
    if isinstance(conf.acl, Mapping):
        roles = "Of the roles in ACL, only app may acquire locks. "
    return (
        f"{roles}Give this client the permission {permission}, or let whoever made the nodes "
        "change their ACL. Container nodes need ZooKeeper 3.5.3 or newer."
    )
