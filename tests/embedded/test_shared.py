"""``HOSTS = "embedded"``: one server for all processes of a user, which starts by itself."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from pytest_django import Settings

from distlock import LockLost, LockUnavailable, zk_lock
from distlock.embedded import shared
from distlock.session.registry import close_sessions
from tests.kit.embedded import kill, pid_in
from tests.kit.helpers import alive, eventually, spawn_python
from tests.kit.losses import Loss
from tests.kit.tools import PATIENCE

pytestmark = pytest.mark.usefixtures("folder")

AT_ONCE = 6

#: Says the address, and whether this process started the server.
FINDER = """
import sys
from distlock.embedded import shared
starts, start = [], shared._start
shared._start = lambda *files: (starts.append(1), start(*files))
print("ready")
sys.stdin.readline()
print(shared.address(), len(starts))
"""


UNUSED = """
import sys
import distlock.checks, distlock.session.session
from distlock.engine.zookeeper import ensemble
from distlock.conf import Configuration
ensemble.hosts(Configuration())
print([name for name in sys.modules if name.startswith("distlock.embedded")])
"""


def test_processes_that_start_at_once_have_one_server() -> None:
    with ExitStack() as stack:
        finders = [stack.enter_context(spawn_python(FINDER)) for _ in range(AT_ONCE)]
        for finder in finders:
            assert finder.stdout is not None
            assert finder.stdout.readline() == "ready\n"
        for finder in finders:
            assert finder.stdin is not None
            finder.stdin.write("\n")
            finder.stdin.flush()
        said = [finder.communicate(timeout=PATIENCE)[0].split() for finder in finders]
    assert len({address for address, _ in said}) == 1
    assert sum(int(starts) for _, starts in said) == 1


def test_the_server_is_apart_from_its_starter(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "swordfish")
    shared.address()
    pid = pid_in(folder)
    assert os.getsid(pid) != os.getsid(0)
    assert os.getpgid(pid) != os.getpgid(0)
    variables = Path(f"/proc/{pid}/environ")
    assert not variables.exists() or b"swordfish" not in variables.read_bytes()


def test_only_the_user_may_open_its_files(folder: Path) -> None:
    shared.address()
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / "embedded").stat().st_mode & 0o077 == 0


def test_an_address_of_a_server_that_has_gone_does_not_count(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        stale = f"127.0.0.1:{foreign.getsockname()[1]}"
        folder.mkdir(mode=0o700)
        (folder / "embedded").write_text(f"{stale} former\n")
        assert shared.address() != stale


def address_after(killed: str) -> str:
    """Find the server after a killed one, whose threads may keep the lock for a moment."""
    eventually(lambda: shared.address() != killed)
    return shared.address()


@pytest.mark.usefixtures("embedded_hosts")
def test_a_killed_server_loses_the_locks_and_the_next_one_gives_them_anew(
    folder: Path, losses: list[Loss]
) -> None:
    with ExitStack() as held:
        hold = held.enter_context(zk_lock("key"))
        kill(pid_in(folder))
        eventually(lambda: hold.lost, PATIENCE)
        with pytest.raises(LockLost):
            held.close()
    eventually(lambda: [loss.key for loss in losses] == ["key"], PATIENCE)
    with zk_lock("key", timeout=PATIENCE) as later:
        assert later.token > hold.token


def test_a_child_that_is_forked_meanwhile_does_not_keep_the_lock(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starting, forking = threading.Event(), threading.Event()
    run = subprocess.run

    def slow(*args: object, **options: object) -> object:
        starting.set()
        forking.wait(0.5)
        return run(*args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", slow)
    thread = threading.Thread(target=shared.address)
    thread.start()
    starting.wait(PATIENCE)
    alive_until, held_by_us = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(held_by_us)
        os.read(alive_until, 1)
        os._exit(0)
    forking.set()
    thread.join()
    try:
        former = shared.address()
        kill(pid_in(folder))
        address_after(former)
    finally:
        os.close(held_by_us)
        os.close(alive_until)
        os.waitpid(child, 0)


def test_a_session_that_begins_while_it_ends_finds_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.DISTLOCK = {"default": {"HOSTS": "embedded", "CONNECT_TIMEOUT": PATIENCE}}
    monkeypatch.setattr(shared, "IDLE_SECONDS", 0.1)
    servers = set()
    for attempt in range(8):
        with zk_lock("key", timeout=PATIENCE):
            servers.add(pid_in(folder))
        close_sessions()
        threading.Event().wait(0.05 * attempt)
    assert len(servers) > 1


def test_it_ends_when_its_file_is_removed(folder: Path) -> None:
    shared.address()
    pid = pid_in(folder)
    (folder / "embedded").unlink()
    eventually(lambda: not alive(pid))


@pytest.mark.parametrize("mode", [0o755, 0o770])
def test_a_folder_that_others_may_open_is_refused(mode: int, folder: Path) -> None:
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(PermissionError, match=str(folder)):
        shared.address()


def test_a_link_to_a_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match=str(folder)):
        shared.address()


def test_a_link_in_place_of_the_file_is_refused(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "embedded").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=str(folder)):
        shared.address()
    assert not (tmp_path / "elsewhere").exists()


def test_a_server_that_cannot_start_names_its_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "interpreter", lambda: "/bin/false")
    with pytest.raises(ChildProcessError, match=str(folder / "embedded.log")):
        shared.address()


@pytest.mark.usefixtures("embedded_hosts")
def test_a_caller_learns_why_there_is_no_server(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(LockUnavailable, match=f"'embedded' here: {folder} is not a folder"):
        zk_lock("key", timeout=0.5).acquire()


def test_the_embedded_server_is_not_imported_for_another_one() -> None:
    with spawn_python(UNUSED) as process:
        assert process.communicate(timeout=PATIENCE)[0] == "[]\n"
