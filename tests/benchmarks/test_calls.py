"""The path of an uncontended lock stays as short as `benchmarks.calls` says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks import calls
from distlock_chaos.server import ZooKeeper

ROOT = Path(calls.__file__).resolve().parent.parent


def test_an_acquire_and_a_release_stay_within_the_budget(zookeeper: ZooKeeper) -> None:
    # In a process of its own, where nothing listens to signals and no coverage is traced.
    command = [sys.executable, "-m", "benchmarks.calls", "--cycles", "100", "--functions"]
    run = subprocess.run(
        [*command, "--hosts", zookeeper.hosts],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.stdout, run.stderr
    figures = json.loads(run.stdout.partition("\n")[0])
    assert figures["total"] <= calls.MOST_CALLS, run.stdout
    assert figures["frames"] <= calls.MOST_FRAMES
    assert figures["caller"] > 50
    assert figures["others"] > 20
    assert run.returncode == 0


def test_the_page_tells_the_budget() -> None:
    page = (ROOT / "benchmarks" / "performance.md").read_text()
    assert f"A test allows {calls.MOST_CALLS} calls and ten frames." in page


def test_a_file_is_counted_for_its_room() -> None:
    assert calls.room("/x/distlock/engine/wire.py") == "distlock/engine"
    assert calls.room("/x/distlock/signals.py") == "distlock/signals"
    assert calls.room("/lib/site-packages/kazoo/client.py") == "kazoo"
    assert calls.room("/lib/python3.11/threading.py") == "Python"
