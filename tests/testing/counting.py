"""What the processes of `test_embedded_process` do: they count together, under a lock."""

from __future__ import annotations

from pathlib import Path

from tests.kit.tools import PATIENCE, set_up

KEY = "counter"
TIMES = 20


def count(hosts: str, namespace: str, file: str) -> None:
    """Raise the number in a file, which without a lock would lose some of what others do."""
    set_up(hosts, namespace, TIMEOUT=PATIENCE)
    from distlock import zk_lock  # noqa: PLC0415 - not before set_up

    for _ in range(TIMES):
        with zk_lock(KEY):
            number = int(Path(file).read_text())
            Path(file).write_text(f"{number + 1}")
