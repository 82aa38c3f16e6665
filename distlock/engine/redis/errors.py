"""Explains what a Redis server refuses, and what to do about it."""

from __future__ import annotations

import re
import ssl
import time
from typing import Final

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    ResponseError,
)
from redis.sentinel import MasterNotFoundError

from distlock.engine import kazoo
from distlock.engine.errors import NotYet


class RedisRefused(Exception):
    """The server refuses what it is asked; the message says what to do."""


class TooFewReplicas(RedisRefused):
    """Fewer replicas than ``REPLICAS`` have confirmed a lock in time, so it was given back."""


class NotConfirmed(kazoo.ConnectionLoss):  # type: ignore[misc]
    """Fewer replicas than ``REPLICAS`` have confirmed a write: a failover may lose it."""


class JustStarted(RedisRefused, NotYet):
    """The server has just started, or taken over, and grants no lock yet."""


#: The commands that a user of the server needs.
RIGHTS: Final = (
    "+@read +@write +@pubsub +@connection -@dangerous -@scripting -scan "
    "+evalsha +script|load +time +info +wait"
)
_NO_RIGHTS: Final = (
    "does not let this user do what locks need ({0}). The user needs ~* and &*, or the keys and "
    f"channels of the namespace, and these commands: {RIGHTS}."
)
_RENAMED: Final = (
    "lacks a command that locks need ({0}). distlock needs Redis 6.2, or Valkey, and none of the "
    "commands renamed (rename-command): limit the rights of users instead."
)

#: The advice, by the first word of the server's errors.
_ADVICE: Final = {
    "OOM": "is out of memory. Raise its maxmemory, or free some; "
    "its maxmemory-policy should be noeviction.",
    "EVICTS": "forgets locks when its memory is full ({0}). Set its maxmemory-policy to "
    "noeviction, or to one of volatile-*, which keep what has no expiry.",
    "READONLY": "is a replica. Name the primary in HOSTS, or the Sentinels: "
    '"redis+sentinel://host:26379,host:26379/service".',
    "MASTERDOWN": "is a replica that has lost its primary.",
    "NOREPLICAS": "has too few replicas for its min-replicas-to-write.",
    "MISCONF": "cannot write to its disk, and refuses changes. See its log.",
    "LOADING": "is still reading its data from disk. Try again soon.",
    "NOAUTH": "wants a password. Write it into HOSTS.",
    "WRONGPASS": "refused the name or the password in HOSTS.",
    "NOPERM": _NO_RIGHTS,
    # Within a script, as Redis and as Valkey say it.
    "can't run this command": _NO_RIGHTS,
    "ACL failure in script:": _NO_RIGHTS,
    "WRONGTYPE": "has a key of another type under the prefix of this namespace. Set another "
    "NAMESPACE, or another database in HOSTS.",
    "LAYOUT": "has locks of another version of distlock, which keeps them in another way. Stop "
    "that version and delete its keys, or set another NAMESPACE.",
    "MOVED": "is one of a cluster, and the keys are on another ({0}). Name that server in HOSTS.",
    "CLUSTERDOWN": "is one of a cluster that is down.",
    # The greeting of Redis 5.
    "unknown command `HELLO`": "is too old: distlock needs Redis 6.2, or Valkey.",
    "unknown command": _RENAMED,
    # Within a script.
    "Unknown Redis command": _RENAMED,
    "Unknown command": _RENAMED,
}


#: How Redis 6 begins an error within a script (``luaPushError`` in its ``scripting.c``).
_WITHIN: Final = re.compile(r"ERR Error running script \(call to \w+\): (@user_script: ?\d+: )*-?")


def bare(text: str) -> str:
    """Return an error so that it begins with its own word."""
    return _WITHIN.sub("", text, count=1)


def _grace(text: str, where: str) -> JustStarted:
    seconds = int(text.split()[1]) / 1000
    error = JustStarted(
        f"{where} has just started, taken the place of another server, or been flushed, and may "
        f"not know all locks that were granted before. It grants none for {seconds:.1f} s more; "
        "by then their holders know that they are lost. Try again, or wait longer with timeout=."
    )
    error.until = time.monotonic() + seconds
    return error


def error_of(text: str, where: str) -> RedisRefused:
    """Return the error for an answer of the server `where`, such as ``OOM command not allowed``."""
    if text.startswith("GRACE "):
        return _grace(text, where)
    text = bare(text.partition(", with args")[0])  # which may be secrets
    # An error within a script ends with its name and the line.
    for word, advice in _ADVICE.items():
        if text.startswith(word) or f"-{word} " in text or f" {word} " in f"{text} ":
            return RedisRefused(f"{where} {advice.format(text.removeprefix('EVICTS '))}")
    return RedisRefused(f"{where} could not serve the request: {text}")


def refusal(error: BaseException, where: str) -> RedisRefused | None:
    """Return the error for one of redis-py's, which has lost the server's first word, or of TLS."""
    if isinstance(error, MasterNotFoundError):
        return _no_primary(str(error), where)
    tls = _tls_error(error)
    if tls is not None:
        return RedisRefused(
            f"{where} cannot be used with TLS: {tls}. Check the ssl_ options in HOSTS."
        )
    match error:
        case AuthenticationError():
            word = "WRONGPASS" if "invalid" in str(error) else "NOAUTH"
        case NoPermissionError():
            word = "NOPERM"
        case BusyLoadingError():
            word = "LOADING"
        case ResponseError():
            word = ""
        case _:
            return None
    return error_of(f"{word} {error}".strip(), where)


def _no_primary(told: str, where: str) -> RedisRefused | None:
    """Return why no Sentinel names the primary, by redis-py's text; None if none answers."""
    if "AuthenticationError" in told:
        return RedisRefused(
            f"{where} cannot be found: the Sentinels want another password. Write it after the ? "
            "of HOSTS: sentinel_password=..., and sentinel_username=... where they have users."
        )
    if "SSL" in told or "certificate" in told:
        return RedisRefused(
            f"{where} cannot be found: the Sentinels cannot be used with TLS. Check the ssl_ "
            "options in HOSTS, or write sentinel_ssl=false if only the servers use it."
        )
    if " : " in told:
        return None
    return RedisRefused(
        f"{where} cannot be found: the Sentinels know no primary of this name that is up. "
        "`SENTINEL MASTERS` shows those that they know."
    )


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """Return the error of TLS, which redis-py wraps where the greeting fails.

    There a server that refuses this client may just hang up; later that says nothing.
    """
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return None
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__context__
    return error
