"""Fails the test that leaves something in the process, by the name of what it leaves.

The rule: what stands when the first fixture of a test's own begins belongs to fixtures of a wider
scope, which undo it themselves, or to the process. pytest sets up wider scopes first and undoes
them last, and this fixture is the first of a test's own. So each test is compared with itself, and
the next one is not blamed. It reads ``/proc``, so it needs Linux.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # it makes no enums: 10 times as fast
import faulthandler
import gc
import logging
import os
import signal
import sys
import threading
import time
from concurrent.futures.thread import _worker
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.utils import translation

from distlock.lease.hold import _blocks
from distlock.locks import held_permits
from distlock.owner.owner import current
from distlock.session.registry import sessions

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

#: How long a thread, a process or a connection that was told to end may take for it, in seconds.
PATIENCE = 20.0
#: How long before the garbage collector is asked, in seconds.
GRACE = 0.03
_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children")
_there: dict[str, set[Any]] = {}
_SIGNALS = range(1, signal.NSIG)


@pytest.fixture(autouse=True)
def _leaves_nothing() -> Iterator[None]:
    state = _state()
    _there.update(_things())
    yield
    left = _changes(state)
    pause, deadline = 0.001, time.monotonic() + PATIENCE
    while (new := _new(_there)) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
        if pause > GRACE:
            gc.collect()
    left += [f"{kind}: {_described(kind, one)}" for kind, some in new.items() for one in some]
    current().release_all()
    held_permits.clear()
    _blocks.clear()
    if left:
        pytest.fail(f"The test leaves {'; '.join(left)}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Let a fixture of a wider scope keep what it makes, also if a test asks for it late."""
    if fixturedef.scope == "function":
        return (yield)
    before = _things()
    result = yield
    for kind, some in _things().items():
        _there.setdefault(kind, set()).update(some - before[kind])
    return result


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
        "sys.path": list(dict.fromkeys(sys.path)),  # Celery adds "." again for each app
        "signal handlers": [_handler(number) for number in _SIGNALS],
        "loggers": {
            one.name: (one.level, one.propagate, one.disabled, *_handlers(one), *one.filters)
            for one in loggers
            if isinstance(one, logging.Logger)
        },
        "settings": settings._wrapped.__dict__.copy(),  # type: ignore[misc]
        "language": translation.get_language(),
        "garbage collection": (gc.isenabled(), gc.get_threshold(), gc.get_debug()),
        "tracing": (
            *(sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
            *(faulthandler.is_enabled(), sys.getswitchinterval(), sys.getrecursionlimit()),
        ),
        "hooks": (sys.excepthook, threading.excepthook),
        "exception being handled": repr(sys.exc_info()[1]),
    }


def _things() -> dict[str, set[Any]]:
    """What there may be less of."""
    return {
        "hold": set(current().held.values()),
        "permit": set(held_permits._held),
        "block with a lease": set(_blocks),
        "session": set(sessions()),
        "thread": set(threading.enumerate()),
        "open file": _open_files(),
        "child process": set(_CHILDREN.read_text().split()),
    }


def _handler(number: int) -> object:
    """Return a signal's handler; pytest-timeout takes its own back after a failure."""
    found = _signal.getsignal(number)
    return 0 if getattr(found, "__module__", "") == "pytest_timeout" else found


def _handlers(one: logging.Logger) -> list[tuple[type[logging.Handler], int]]:
    """Describe a logger's handlers: `django.setup` makes them anew, and pytest has its own."""
    return [
        (type(handler), handler.level)
        for handler in one.handlers
        if not type(handler).__module__.startswith("_pytest.")
    ]


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
    new = {}
    for kind, some in _things().items():
        # A server that was killed and started again is another process, and not one more.
        if kind not in {"child process", "open file"} or len(some) > len(before[kind]):
            new[kind] = some - before[kind]
    # It leads nowhere: the files that it watches are counted. kombu leaves it to the collector.
    new["open file"] = {one for one in new.get("open file", ()) if "eventpoll" not in _target(one)}
    if new["thread"]:
        new["thread"] = set(_busy(new["thread"]))
    # multiprocessing starts one for the process, and keeps it.
    tracker: Any = resource_tracker._resource_tracker
    for kind, one in (("child process", tracker._pid), ("open file", tracker._fd)):
        new.get(kind, set()).discard(str(one))
    return {kind: some for kind, some in new.items() if some}


def _busy(threads: set[threading.Thread]) -> Iterator[threading.Thread]:
    """Yield those that do something which is of no session.

    An idle thread of a pool ends when the garbage collector finds the pool; asgiref keeps one. The
    timer and the recorder of history may stay for the life of the process.
    """
    frames = sys._current_frames()
    process_wide = ("distlock-history", "distlock-timer")
    ours = (*process_wide, *(f"distlock-{session.conf.alias}" for session in sessions()))
    for thread in threads:
        frame = frames.get(thread.ident or 0)  # None for a thread that Python has not started
        idle = frame is None or frame.f_code is _worker.__code__
        if not idle and not thread.name.startswith(ours):
            yield thread


def _described(kind: str, one: Any) -> str:
    if kind == "open file":
        return _target(one)
    if kind == "child process":
        return Path(f"/proc/{one}/cmdline").read_text().replace("\0", " ")
    return repr(getattr(one, "conf", one))


def _target(number: str) -> str:
    try:
        return str(Path(f"/proc/self/fd/{number}").readlink())
    except OSError:
        return f"{number}, closed by now"
