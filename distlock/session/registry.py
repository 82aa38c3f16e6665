"""Opens the sessions of this process when first needed, closes them, forgets them in a fork.

It also lends a session to users, as kazoo's client.
"""

from __future__ import annotations

import atexit
import threading
from contextlib import suppress
from os import getpid
from typing import TYPE_CHECKING, Any

from django.core.signals import setting_changed

from distlock import process
from distlock.conf import configuration
from distlock.engine.hosts import engine_of, settings_of
from distlock.exceptions import LockUnavailable

from .session import Session, observers
from .termination import release_in_commands

if TYPE_CHECKING:
    from distlock.engine.kazoo import KazooClient
    from distlock.engine.reply import Done

    from .session import Observer

#: A signal handler may begin one between any two lines, so none is ever replaced: each is put in
#: and taken out by itself, in one step.
_sessions: list[Session] = []
# Reentrant, for a signal handler that takes a first lock on top of code that does.
_lock = threading.RLock()


def observe_sessions(notify: Observer) -> None:
    """Call `notify` when a session of this process begins, and when it has been closed.

    `notify` gets the configuration, the id and the password; after an orderly close the password is
    None. It is called now for sessions that have begun; register it again to repeat that. Later
    calls come on the connection thread or from the closing thread, in forked children, too.
    """
    if notify not in observers:
        observers.append(notify)
    for session in sessions():
        if session.id:
            session.notify(notify)


def sessions() -> list[Session]:
    """Return the sessions of this process."""
    process.notice_fork()
    return list(_sessions)


def session_for(alias: str = "default") -> Session:
    """Return this process's session for `alias`; the first call starts to connect.

    :raises LockUnavailable: no thread can be started
    """
    if process.noticed_pid != getpid():
        process.notice_fork()
    for session in _sessions:
        if session.conf.alias == alias and not session.over:
            return session
    conf = configuration(alias)
    with _lock:
        if living := _living(alias):
            return living
        try:
            release_in_commands()
            made = Session(conf, _sessions.append)
        except LockUnavailable as error:  # no thread can be started
            error.using = alias
            raise
        process.at_end_of_child(close_sessions, priority=100)
        kept = _living(alias) or made
        for one in sessions():
            if one is not kept and (one is made or one.over):
                with suppress(ValueError):  # a signal handler has taken it out
                    _sessions.remove(one)
    if made is not kept:
        made.close()
    return kept


def _living(alias: str) -> Session | None:
    living = (one for one in sessions() if one.conf.alias == alias and not one.over)
    return next(living, None)


def kazoo_client(using: str = "default") -> KazooClient:
    """Return the ``KazooClient`` of this process's session, connected.

    Nodes, watches and recipes of this client live and die with the same session as the locks. You
    need not start it, and you cannot stop it: it closes when the process ends. Its callbacks run on
    threads of their own, and may block. Paths are relative to the chroot of ``HOSTS``. New nodes
    have the ACL of the settings.

    In a forked child, call this function again: the parent's client raises
    ``ConnectionClosedError`` there.

    :param using: the alias in ``DISTLOCK``
    :raises LockUnavailable: there is no connection within ``CONNECT_TIMEOUT``
    :raises RuntimeError: the alias uses another engine than ZooKeeper
    """
    session = session_for(using)
    lend = engine_of(session.conf.hosts).lend
    if lend is None:
        raise RuntimeError(
            f"DISTLOCK[{using!r}] uses {settings_of(session.conf.hosts).NAME}, for which there is "
            "no client of kazoo. Name an alias of ZooKeeper in `using`, or make a client of your "
            "own."
        )
    if session.lent is None or not session.lent.connected:

        def make(done: Done) -> None:  # once the server has taken the credentials
            session.soon(lambda: done(lend(session.make, session.conf), None))

        session.lent = session.call(make, key="")
    kazoo: KazooClient = session.lent
    return kazoo


def close_sessions() -> None:
    """End all sessions of this process, which frees its locks at once; the next use reopens."""
    process.notice_fork()
    closing = []
    with _lock, suppress(IndexError):
        while True:
            closing.append(_sessions.pop())
    for session in closing:
        session.close()


#: Kept, so that no finaliser ever closes a session of the parent.
_inherited: list[Session] = []


@process.in_child
def _forget_the_parent() -> None:
    """In a forked child: drop the parent's sessions without telling the server."""
    global _lock  # noqa: PLW0603 - the parent may have held it at the fork
    _inherited.extend(_sessions)
    _sessions.clear()
    _lock = threading.RLock()


def _settings_changed(*, setting: str, **_: Any) -> None:
    if setting == "DISTLOCK":
        close_sessions()


atexit.register(close_sessions)
setting_changed.connect(_settings_changed)
