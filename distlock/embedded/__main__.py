"""`python -m distlock.embedded`: runs the embedded server as a process of its own.

It prints ``ZooKeeper ready on 127.0.0.1:43211``, and serves until SIGINT or SIGTERM, until nobody
has been connected for as long as ``--idle`` says, or until its ``--parent`` has ended.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
from contextlib import suppress

from .server import EmbeddedZooKeeper
from .shared import announce, in_place


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m distlock.embedded")
    parser.add_argument(
        "--idle",
        type=float,
        default=math.inf,
        help="end after so many seconds without a connection",
    )
    parser.add_argument(
        "--shared", type=int, help="go to the background, for the lock on this descriptor"
    )
    parser.add_argument("--parent", type=int, help="end when this is no longer the parent process")
    options = parser.parse_args()
    shared_file: int | None = options.shared
    if shared_file is not None and os.fork():
        os._exit(0)  # nobody has to wait for the server itself
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background job ignores SIGINT
        signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt), EmbeddedZooKeeper(idle=options.idle) as server:
        sys.stdout.write(f"ZooKeeper ready on {server.hosts}\n")
        sys.stdout.flush()
        if shared_file is not None:
            announce(shared_file, server.hosts)
        while not server.wait(1.0):
            if shared_file is not None and not in_place(shared_file):
                break
            if options.parent not in {None, os.getppid()}:
                break


if __name__ == "__main__":
    main()
