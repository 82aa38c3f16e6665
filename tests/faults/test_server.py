from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from distlock_chaos import install
from distlock_chaos.ports import free_ports
from distlock_chaos.server import PortInUse, ServerFailed, ServerNotInstalled, ZooKeeper
from tests.kit.helpers import alive, eventually, raw_client, spawn_python


def test_a_started_server_answers_and_keeps_its_port_over_a_restart() -> None:
    with ZooKeeper() as zookeeper:
        (server,) = zookeeper.servers
        folder = zookeeper.data_dir
        assert zookeeper.hosts == f"127.0.0.1:{server.port}"
        assert server.command("ruok") == "imok"
        assert zookeeper.leader() is server
        assert zookeeper.followers() == []

        with raw_client(zookeeper.hosts) as client:
            client.create("/kept", b"data")
        pid = server.pid
        server.stop()
        assert server.mode is None
        assert not alive(pid)
        server.start()
        assert server.pid != pid
        with raw_client(zookeeper.hosts) as client:
            assert client.get("/kept")[0] == b"data"

        pid = server.pid
    assert not alive(pid)
    assert folder is not None
    assert not folder.exists()


PARENT = """
import os, threading, time
from distlock_chaos.server import ZooKeeper

zookeeper = ZooKeeper()
starter = threading.Thread(target=zookeeper.start)   # it ends, and the server must not end with it
starter.start()
starter.join()
forked = os.fork()                                   # it outlives the parent: the server must not
if forked == 0:
    time.sleep(60)
    os._exit(0)
print(zookeeper.servers[0].pid, forked, zookeeper.data_dir, zookeeper.servers[0].mode)
time.sleep(60)
"""


@pytest.mark.parametrize("paused", [False, True])
def test_the_server_and_its_folder_end_with_a_parent_that_is_killed(paused: bool) -> None:
    with spawn_python(PARENT) as parent:
        assert parent.stdout is not None
        pid, forked, folder, mode = parent.stdout.readline().split()
        try:
            assert mode == "standalone"
            assert alive(int(pid))
            if paused:
                os.kill(int(pid), signal.SIGSTOP)
            parent.kill()
            parent.wait()
            eventually(lambda: not alive(int(pid)), message="the server ended")
            eventually(lambda: not Path(folder).exists(), message="its folder was removed")
            assert alive(int(forked))
        finally:
            os.kill(int(forked), signal.SIGKILL)


def test_a_forked_child_does_not_end_its_parents_server() -> None:
    with ZooKeeper() as zookeeper:
        child = os.fork()
        if child == 0:
            try:
                zookeeper.stop()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert zookeeper.servers[0].command("ruok") == "imok"


def test_a_server_that_cannot_run_shows_its_log_and_leaves_nothing() -> None:
    zookeeper = ZooKeeper(config={"tickTime": "soon"})
    with pytest.raises(ServerFailed, match="NumberFormatException"):
        zookeeper.start()
    assert zookeeper.data_dir is not None
    assert not zookeeper.data_dir.exists()


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", *free_ports(1))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=f"Port {port} .*another port"):
            ZooKeeper(port=port).start()


def test_without_java_the_message_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(install, "HOMEBREW", ())
    with pytest.raises(ServerNotInstalled, match="apt-get install zookeeper") as caught:
        ZooKeeper().start()
    assert "brew install zookeeper" in str(caught.value)
    assert "ZOOKEEPER_HOME" in str(caught.value)


def test_the_module_needs_neither_kazoo_nor_settings() -> None:
    code = (
        "import sys, distlock; given = set(sys.modules)\n"
        "import distlock_chaos.server\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - given}\n"
        "print(sorted(new & {'kazoo', 'django'}))"
    )
    with spawn_python(code) as process:
        assert process.communicate(timeout=60)[0].strip() == "[]"
