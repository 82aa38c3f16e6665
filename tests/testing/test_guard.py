"""Child processes that end with the process that started them, with pipes and without."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from distlock.testing.guard import GuardedProcess
from tests.helpers import alive, eventually, spawn_python

if TYPE_CHECKING:
    from pathlib import Path

ECHO = """
import sys
for line in sys.stdin:
    print("heard", line, end="", flush=True)
print("the end", file=sys.stderr)
"""

# Starts a guarded process that would read for ever, and tells its id.
STARTS = """
import sys
from pathlib import Path
from distlock.testing.guard import GuardedProcess
folder = Path(sys.argv[1])
piped = sys.argv[2] == "piped"
code = "import signal; signal.pause()"
child = GuardedProcess([sys.executable, "-c", code], output=folder / "log", cwd=folder, piped=piped)
print(child.pid)
sys.stdin.read()
"""


def test_a_piped_process_is_told_and_answers_and_its_errors_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = GuardedProcess([sys.executable, "-c", ECHO], output=log, cwd=tmp_path, piped=True)
    with process.stdin, process.stdout:
        process.stdin.write("one\n")
        process.stdin.flush()
        assert process.stdout.readline() == "heard one\n"
        process.stdin.close()
        assert process.wait(30) == 0
        assert process.stdout.read() == ""
    assert log.read_text() == "the end\n"


def test_a_process_without_pipes_has_none(tmp_path: Path) -> None:
    process = GuardedProcess([sys.executable, "-c", ECHO], output=tmp_path / "log", cwd=tmp_path)
    assert process.wait(30) == 0
    for pipe in ("stdin", "stdout"):
        with pytest.raises(ValueError, match="piped=True"):
            getattr(process, pipe)


@pytest.mark.parametrize("piped", ["piped", "not piped"])
def test_a_guarded_process_ends_when_its_parent_is_killed(tmp_path: Path, piped: str) -> None:
    with spawn_python(STARTS, str(tmp_path), piped) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.kill()
        eventually(lambda: not alive(child), 30, "the end of the child")
