"""``python -m tests.simulate``: replay one seed, or run many."""

from __future__ import annotations

import argparse
import os
import sys
import time
from multiprocessing import get_context

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")


def main() -> int:
    """Do what the arguments say; return 1 if something was found."""
    django.setup()
    parser = argparse.ArgumentParser(prog="python -m tests.simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one, and print what happens")
    parser.add_argument("--seeds", metavar="A:B", help="run these")
    parser.add_argument("--minutes", type=float, help="run for so long")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--mutations", nargs="?", const="", help="take safety measures back")
    parser.add_argument("--whole", action="store_true", help="with --seed: shrink nothing")
    options = parser.parse_args()
    if options.seed is not None:
        return _replay(options.seed, whole=options.whole)
    if options.mutations is not None:
        from . import mutations  # noqa: PLC0415

        return mutations.main(options.mutations)
    begin, _, end = (options.seeds or f"{int(time.time())}000:").partition(":")
    until = time.monotonic() + options.minutes * 60 if options.minutes else float("inf")
    return _many(int(begin), int(end) if end else sys.maxsize, until, options.workers)


def _replay(seed: int, *, whole: bool) -> int:
    from .schedule import run, shrink  # noqa: PLC0415

    result = run(seed)
    if result.violation and not whole:
        result = shrink(result)
    trace: list[str] = []
    result = run(seed, result.faults, trace)
    print(*trace, sep="\n")  # noqa: T201
    _report(result)
    return bool(result.violation)


def _report(result) -> None:  # type: ignore[no-untyped-def]
    print(f"seed {result.seed}: {result.violation or 'nothing'}")  # noqa: T201
    for fault in result.faults:
        print(f"  {fault}")  # noqa: T201


def _one(seed: int):  # type: ignore[no-untyped-def]
    from .schedule import run  # noqa: PLC0415

    try:
        return run(seed)
    except BaseException as error:
        raise RuntimeError(f"seed {seed}") from error


def _many(begin: int, end: int, until: float, workers: int) -> int:
    from .schedule import shrink  # noqa: PLC0415

    began, done, grants, found = time.monotonic(), 0, 0, 0
    seeds = iter(range(begin, end))
    with get_context("fork").Pool(workers) as pool:
        for result in pool.imap(_one, seeds, chunksize=1):
            done += 1
            grants += result.grants
            if result.violation:
                found += 1
                _report(shrink(result))
            if time.monotonic() > until:
                break
        pool.terminate()
    seconds = time.monotonic() - began
    print(  # noqa: T201
        f"{done} schedules, {grants} grants, {done / seconds:.1f} a second; {found} violations"
    )
    return bool(found)


sys.exit(main())
