"""Child processes that end with the process that started them, with pipes and without."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from distlock_chaos.guard import GuardedProcess
from tests.kit.helpers import alive, eventually

ECHO = """
import sys
for line in sys.stdin:
    print("heard", line, end="", flush=True)
print("the end", file=sys.stderr)
"""


# The main thread stops the others, and gets what they leave of the one processor.
MAIN_THREAD_COMES_LAST = """
import hashlib, os, sys, threading
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

def work():
    while True:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 10_000)

for _ in range(8):
    threading.Thread(target=work, daemon=True).start()
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
print("works", flush=True)
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


def test_no_thread_of_a_paused_process_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAIN_THREAD_COMES_LAST]
    process = GuardedProcess(command, output=tmp_path / "log", cwd=tmp_path, piped=True)
    with process.stdin, process.stdout:
        try:
            assert process.stdout.readline() == "works\n"
            for _ in range(20):
                process.pause()
                states = {
                    task.read_text().rpartition(")")[2].split()[0]
                    for task in Path(f"/proc/{process.pid}/task").glob("*/stat")
                }
                assert states == {"T"}
                process.send(signal.SIGCONT)
        finally:
            process.send(signal.SIGKILL)
            process.wait()


def test_a_process_that_ends_instead_of_pausing_is_not_waited_for(tmp_path: Path) -> None:
    process = GuardedProcess([sys.executable, "-c", ""], output=tmp_path / "log", cwd=tmp_path)
    eventually(lambda: not alive(process.pid), 30, "its end")
    process.pause()
    assert not process.running
    process.wait()
