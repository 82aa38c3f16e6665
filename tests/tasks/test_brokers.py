"""Another broker than Redis: files in a folder, which Celery serves without any server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.kit.celery_tools import PATIENCE, fleet
from tests.kit.helpers import eventually
from tests.testproject.elsewhere import held_elsewhere

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_django import Settings

    from distlock_chaos.server import ZooKeeper


def test_tasks_are_put_off_over_the_filesystem_broker(
    zookeeper: ZooKeeper, tmp_path: Path, settings: Settings
) -> None:
    folders = {name: tmp_path / name for name in ("queue", "processed", "control", "results")}
    for folder in folders.values():
        folder.mkdir()
    options = {
        "data_folder_in": str(folders["queue"]),
        "data_folder_out": str(folders["queue"]),
        "processed_folder": str(folders["processed"]),
        "control_folder": str(folders["control"]),
    }
    celery = {
        "broker_transport_options": options,
        "result_backend": f"file://{folders['results']}",
    }
    with (
        fleet(zookeeper, tmp_path, "filesystem://", celery=celery, RETRY_AFTER=0.1) as troupe,
        troupe.worker(concurrency=2) as worker,
    ):
        settings.DISTLOCK = troupe.distlock
        retry = troupe.task("retry", "tests.testproject.locked_tasks")
        with held_elsewhere("feed"):
            results = [retry.delay("feed", f"actor-{n}") for n in range(3)]
            for result in results:
                eventually(lambda result=result: f"[{result.id}] retry" in worker.log, PATIENCE)  # type: ignore[misc]
        said = [result.get(timeout=PATIENCE) for result in results]
        assert [(one["id"], one["retries"]) for one in said] == [(one.id, 0) for one in results]
        assert all(one["headers"]["distlock"]["busy"] > 0 for one in said)
