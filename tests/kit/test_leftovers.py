from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from .helpers import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SUITE = """
import gc, logging, os, signal, subprocess, sys, threading

import pytest
from django.conf import settings
from django.test import override_settings
from django.utils import translation

from distlock import zk_lease, zk_lock, zk_semaphore
from distlock.session.registry import session_for
from distlock.testing import memory_zookeeper
from tests.kit import leftovers

@pytest.fixture(scope="module")
def memory():
    aliases = {"default": {"HOSTS": "unused"}, "other": {"HOSTS": "unused"}}
    with override_settings(DISTLOCK=aliases), memory_zookeeper():
        with zk_lock("first"):
            pass  # so that the session has opened all its files
        yield

@pytest.fixture(scope="module", autouse=True)
def of_the_module():
    end = threading.Event()
    os.environ["OF_THE_MODULE"] = "1"
    thread = threading.Thread(target=end.wait)
    thread.start()
    yield
    end.set()
    thread.join()
    del os.environ["OF_THE_MODULE"]

def test_clean(memory, monkeypatch):
    monkeypatch.setenv("KEY", "value")
    with zk_lock("key"), open("/dev/null"):
        pass
    threading.Thread(target=print).start()

def test_hold(memory):
    leftovers.PATIENCE = 0.2  # what follows does not end
    zk_lock("key").acquire()

def test_permit(memory):
    zk_semaphore("key", 1).acquire()

def test_block_with_a_lease(memory):
    zk_lease("key", 60).__enter__()

def test_session(memory):
    session_for("other")

def test_thread():
    threading.Thread(target=threading.Event().wait, daemon=True).start()

def test_open_file():
    os.open("/dev/null", os.O_RDONLY)

def test_child_process():
    global child
    child = subprocess.Popen(["sleep", "600"])

def test_environment():
    child.kill()
    child.wait()
    os.environ["KEY"] = "value"

def test_working_directory(tmp_path):
    os.chdir(tmp_path)

def test_sys_path():
    sys.path.append("/nowhere")

def test_signal_handlers():
    signal.signal(signal.SIGUSR1, print)

def test_loggers():
    logging.getLogger("django").disabled = True

def test_settings():
    settings.DEBUG = True

def test_language():
    translation.activate("fr")

def test_garbage_collection():
    gc.disable()

def test_tracing():
    threading.setprofile(print)

def test_hooks():
    sys.excepthook = print
"""


def test_who_leaves_something_fails_and_the_next_does_not(tmp_path: Path) -> None:
    (tmp_path / "test_leaving.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    arguments = ["-p", "tests.kit.leftovers", "-p", "no:randomly", "-rE", tmp_path.name]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=tmp_path.parent,
        env={
            **os.environ,
            "COLUMNS": "200",
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "tests.settings",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    # One each, in this order, and named after the test.
    names = re.findall(
        r"^ERROR .*::test_(\w+) - Failed: The test leaves ([a-z._ ]+):", run.stdout, re.MULTILINE
    )
    tests = re.findall(r"^def test_(\w+)", SUITE, re.MULTILINE)
    assert [name for name, _ in names] == tests[1:], run.stdout
    assert [re.sub(r"\W", "_", what) for _, what in names] == tests[1:], run.stdout
