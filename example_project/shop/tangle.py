"""A deadlock for show: three processes, each of which holds one lock and waits for the next one's.

It goes on until it is broken: by distlock's own detection after `DEADLOCK_AFTER` seconds, or by an
operator who breaks a lock on the admin page. Then all begin anew.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from distlock import DistlockError, zk_lock
from distlock.owner.owner import label
from distlock_chaos.guard import GuardedProcess

PROJECT = Path(__file__).resolve().parents[2]
NAMES = ("alice", "bob", "carol")
ROUND_SECONDS = 20
"""All take their first lock at a multiple of this, by the clock on the wall."""


@contextmanager
def tangled(folder: Path) -> Iterator[None]:
    """Let the three run until the end of the block. What they say goes into a file in `folder`."""
    with ExitStack() as stack:
        for number in range(len(NAMES)):
            process = GuardedProcess(
                [sys.executable, "manage.py", "tangle", str(number)],
                output=folder / "tangle.log",
                cwd=PROJECT,
            )
            stack.callback(process.wait)
            stack.callback(process.send, signal.SIGTERM)
        yield


def transfer(number: int) -> None:
    """Take the lock of one account, and a second later that of the next, round by round."""
    name, other = NAMES[number], NAMES[(number + 1) % len(NAMES)]
    while True:
        time.sleep(ROUND_SECONDS - time.time() % ROUND_SECONDS)
        try:
            with label(f"{name} pays {other}"), zk_lock("account:<name>", name=name, timeout=None):
                time.sleep(1)
                with zk_lock("account:<name>", name=other, timeout=None):
                    pass
        except DistlockError as error:  # somebody has to give way
            print(error, flush=True)  # noqa: T201 - into the log
