"""A signal handler that raises while a request is packed does not end the process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import hiredis
import pytest

from distlock.conf import Configuration
from distlock.engine.redis.requests import report
from distlock.session.registry import close_sessions
from tests.interrupts.recipes import RECIPES, block_of
from tests.kit.helpers import spawn_python
from tests.kit.services import Redis
from tests.kit.tools import PATIENCE

#: Raises SIGINT and packs, both in C: so hiredis begins while a signal waits for its handler.
INTERRUPTED = """
import ctypes, random, signal, sys, threading
from functools import partial
from types import SimpleNamespace
from tests.kit.tools import set_up

set_up(sys.argv[1], "/packing")

import hiredis
from distlock import zk_lock
from distlock.engine.redis import requests

raise_sigint = partial(ctypes.pythonapi.PyErr_SetInterruptEx, signal.SIGINT)
chance, interrupts, armed = random.Random(1), 0, False

def pack_command(command):
    pack = partial(hiredis.pack_command, command)
    if threading.current_thread() is threading.main_thread() and armed and chance.random() < 0.5:
        return list(map(partial.__call__, (raise_sigint, pack)))[1]
    return pack()

requests.hiredis = SimpleNamespace(pack_command=pack_command)
lock = zk_lock("key")
for _ in range(300):
    armed = True
    try:
        lock.acquire()
        lock.release()
    except KeyboardInterrupt:
        interrupts += 1
    armed = False
    if lock.held:
        lock.release()
with lock:
    print(interrupts)
"""


def test_a_handler_may_raise_wherever_a_request_is_packed(redis: Redis) -> None:
    with spawn_python(INTERRUPTED, redis.new_database()) as process:
        said, errors = process.communicate(timeout=6 * PATIENCE)
    assert process.returncode == 0, errors
    assert int(said) > 150


def test_the_library_packs_only_bytes(
    use: Callable[..., None], redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed: list[Any] = []
    pack = hiredis.pack_command

    def record(command: tuple[Any, ...]) -> Any:
        if sys._getframe(1).f_globals["__name__"].startswith("distlock"):  # redis-py packs, too
            packed.extend(command)
        return pack(command)

    monkeypatch.setattr(hiredis, "pack_command", record)
    use(redis.new_database())
    for recipe in RECIPES:
        block_of(recipe)()
    close_sessions()
    report(Configuration(hosts="redis://user:password@localhost/1"), 1, b"password")
    assert {b"HELLO", b"FCALL", b"AUTH", b"SELECT"} <= set(packed)
    assert {type(part) for part in packed} == {bytes}
