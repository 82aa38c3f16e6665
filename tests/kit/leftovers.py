"""Fails the test that leaves something in the process, by the name of what it leaves.

The rule: what stands when the first fixture of a test's own begins belongs to fixtures of a wider
scope, which undo it themselves, or to the process. pytest sets up wider scopes first and undoes
them last, and this fixture is the first of a test's own. So each test is compared with itself, and
the next one is not blamed.
"""

from __future__ import annotations

import _signal
import faulthandler
import gc
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.utils import translation

from distlock.engine import timer
from distlock.locks import held_permits
from distlock.owner.owner import current
from distlock.session.registry import sessions

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How long a thread, a process or a connection that was told to end may take for it, in seconds.
PATIENCE = 20.0
#: How long before the garbage collector is asked, in seconds.
GRACE = 0.03
_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children")
_SIGNALS = range(1, signal.NSIG)


@pytest.fixture(autouse=True)
def _leaves_nothing() -> Iterator[None]:
    state, things = _state(), _things()
    yield
    left = _changes(state)
    pause, deadline = 0.001, time.monotonic() + PATIENCE
    while (new := _new(things)) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
        if pause > GRACE:  # asgiref leaves the threads of its executors to the garbage collector
            gc.collect()
    left += [f"{kind}: {_described(kind, one)}" for kind, some in new.items() for one in some]
    current().release_all()
    held_permits.clear()
    if left:
        pytest.fail(f"The test leaves {'; '.join(left)}", pytrace=False)


@pytest.fixture
def monkeypatch(_leaves_nothing: None, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Undone before the check, though a fixture of pytest-django asks for it early."""
    return monkeypatch


def _state() -> dict[str, Any]:
    """What has to be the same."""
    environment = os.environ._data.copy()  # type: ignore[attr-defined]  # a dict, 400 times as fast
    environment.pop(b"PYTEST_CURRENT_TEST", None)
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    return {
        "environment": environment,
        "working directory": os.getcwd(),  # noqa: PTH109 - cheaper
        "sys.path": sys.path.copy(),
        "signal handlers": [_signal.getsignal(number) for number in _SIGNALS],
        "loggers": {
            one.name: (one.level, one.propagate, one.disabled, *one.handlers, *one.filters)
            for one in loggers
            if isinstance(one, logging.Logger)
        },
        "settings": settings._wrapped.__dict__.copy(),
        "language": translation.get_language(),
        "garbage collection": (gc.isenabled(), gc.get_threshold(), gc.get_debug()),
        "tracing": (
            *(sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
            *(faulthandler.is_enabled(), sys.getswitchinterval(), sys.getrecursionlimit()),
        ),
        "hooks": (sys.excepthook, threading.excepthook),
    }


def _things() -> dict[str, set[Any]]:
    """What there may be less of."""
    return {
        "hold": set(current().held.values()),
        "permit": set(held_permits._held),
        "session": set(sessions()),
        "thread": _threads(),
        "open file": _open_files(),
        "child process": set(_CHILDREN.read_text().split()),
    }


def _threads() -> set[threading.Thread]:
    """Those of a session are left with it, and the timer is the process's, for all its life."""
    ours = tuple(f"distlock-{session.conf.alias}" for session in sessions())
    threads = {thread for thread in threading.enumerate() if not thread.name.startswith(ours)}
    return threads - {timer._timer}


def _open_files() -> set[str]:
    own = os.dup(1)  # the number that the listing will have
    os.close(own)
    return set(os.listdir("/proc/self/fd")) - {str(own)}  # noqa: PTH208 - cheaper


def _changes(before: dict[str, Any]) -> list[str]:
    after = _state()
    changes = []
    for kind, was in before.items():
        now = after[kind]
        if isinstance(was, dict) and kind == "loggers":
            now = {name: now.get(name) for name in was}
        if now == was:
            continue
        if isinstance(was, dict):
            names = [name for name in was.keys() | now.keys() if was.get(name) != now.get(name)]
            changes += [
                f"{kind}: {name} = {now.get(name)!r}, was {was.get(name)!r}" for name in names
            ]
        else:
            changes.append(f"{kind}: {now!r}, was {was!r}")
    return changes


def _new(before: dict[str, set[Any]]) -> dict[str, set[Any]]:
    return {kind: new for kind, some in _things().items() if (new := some - before[kind])}


def _described(kind: str, one: Any) -> str:
    if kind == "open file":
        try:
            return str(Path(f"/proc/self/fd/{one}").readlink())
        except OSError:
            return f"{one}, closed by now"
    if kind == "child process":
        return Path(f"/proc/{one}/cmdline").read_text().replace("\0", " ")
    return repr(getattr(one, "conf", one))
