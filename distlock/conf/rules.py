"""Says which values the settings may have, and finds mistakes in them.

The system checks report `problems`; `configuration` refuses them. Each engine knows the settings
that only it has (`distlock.engine.protocol.Settings`).
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from django.utils.module_loading import import_string

from distlock.engine.hosts import ENGINES, mistake, settings_in, settings_of
from distlock.keys import templates

if TYPE_CHECKING:
    from django.core.checks import CheckMessage

#: The most that ``HISTORY`` can be.
MOST_EVENTS: Final = 1_000_000


def problems(alias: str, options: object) -> Iterator[CheckMessage]:
    """Yield the mistakes in the options of one alias, and what its engine warns of."""
    where = f"DISTLOCK[{alias!r}]"
    if not isinstance(options, Mapping):
        yield mistake(f"{where} is not a dict.", 'Write {"HOSTS": "127.0.0.1:2181"}.')
        return
    engine, engines = settings_of(options.get("HOSTS")), [*map(settings_in, ENGINES)]
    examples = ", or ".join(one.EXAMPLE for one in engines)
    rules = {"HOSTS": (lambda hosts: not engine.mistake_in(hosts), examples), **_RULES}
    for one in engines:
        rules |= one.RULES
    for name in options:
        if name not in rules:
            near = difflib.get_close_matches(str(name).upper(), rules, n=1, cutoff=0.7)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(rules)}."
            yield mistake(f"{where} has an unknown setting {name!r}.", hint)
    for name, (accepts, expected) in rules.items():
        if name in options and not accepts(options[name]):
            shown = repr(options[name])
            # Somebody may have written user:password@host.
            value = f": {shown:.200}" if name in _RULES and "@" not in shown else ""
            what = engine.mistake_in(options[name]) if name == "HOSTS" else f"is not valid{value}"
            yield mistake(f"{where}[{name!r}] {what}.", f"Write {expected}.")
    for name, advice in engine.UNKNOWN.items():
        given = options.get(name)
        if given not in _WITHOUT_EFFECT and rules[name][0](given):
            yield mistake(
                f"{where}[{name!r}] means nothing to {engine.NAME}.", f"Remove it. {advice}"
            )
    yield from engine.problems(where, options)


def _seconds(value: object, least: float = 0) -> bool:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value > 0 and value >= least


def _whole(least: int, most: float = math.inf) -> Callable[[object], bool]:
    return lambda value: (
        isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    )


def _namespace(value: object) -> bool:
    if not isinstance(value, str) or not value.startswith("/") or not value.strip("/"):
        return False
    names = value.rstrip("/").split("/")[1:]
    return all(name and templates.znode_name(name) == name for name in names)


def is_prefix(value: object) -> bool:
    """Return whether a text can stand before keys: a colon in it would let two keys meet."""
    return isinstance(value, str) and re.fullmatch(r"[\w.-]+", value, re.ASCII) is not None


def _function(value: object) -> bool:
    try:
        return isinstance(value, str) and callable(import_string(value))
    except ImportError:
        return False


#: The values that change nothing, of settings that only one engine has.
_WITHOUT_EFFECT = (None, False, 0, "open")
_A_TIME = "a number of seconds above 0 (or a timedelta)"

# name → (test of a value, what it should be)
_RULES: Final[dict[str, tuple[Any, str]]] = {
    "NAMESPACE": (_namespace, 'a path such as "/distlock", of letters, digits and _ . : -'),
    "TIMEOUT": (lambda v: v is None or _seconds(v), f"{_A_TIME}, or None to wait for ever"),
    "SESSION_TIMEOUT": (
        lambda v: _seconds(v, least=1),
        (
            "a number of seconds from 1 up (or a timedelta): servers grant two ticks or more, "
            "4 s by default, and below 1 s a pause of two thirds of a second would lose all locks"
        ),
    ),
    "CONNECT_TIMEOUT": (_seconds, _A_TIME),
    "IN_TRANSACTION": (lambda v: v in ("raise", "allow"), "'raise' or 'allow'"),
    "BUSY_STATUS": (_whole(400, 599), "a status from 400 to 599"),
    "RETRY_AFTER": (_seconds, _A_TIME),
    "DEADLOCK_AFTER": (lambda v: v is None or _seconds(v), f"{_A_TIME}, or None not to look"),
    "HELD_LONG": (
        lambda v: v is None or v == "usual" or _seconds(v),
        f"{_A_TIME}, 'usual' for ten times the usual one, or None not to look",
    ),
    "WAITED_LONG": (lambda v: v is None or _seconds(v), f"{_A_TIME}, or None not to look"),
    "STRICT": (lambda v: isinstance(v, bool), "True or False"),
    "MAX_NODE_BYTES": (
        _whole(1000),
        "a number of bytes from 1000 up, well below the servers' jute.maxbuffer",
    ),
    "HISTORY": (_whole(0, MOST_EVENTS), f"a number of events from 0 (no history) to {MOST_EVENTS}"),
    "HISTORY_SLOW": (
        lambda v: (v == 0 and not isinstance(v, bool)) or _seconds(v),
        "a number of seconds from 0 up (or a timedelta); 0 records each hold",
    ),
    "NODE_DATA": (lambda v: v in ("full", "owner"), "'full' or 'owner'"),
    "LABEL": (lambda v: v in ("route", "path"), "'route' or 'path'"),
    "KEY_PREFIX": (
        lambda v: is_prefix(v) and ("." not in v or _function(v)),
        (
            'a text of letters, digits, _ and -, such as "shop", or the dotted path of a function '
            "that can be imported and returns one; or leave it out"
        ),
    ),
    "BESIDE": (
        lambda v: v is None or _function(v),
        "the dotted path of a function that can be imported and returns the old lock, or None",
    ),
}
