"""What a program that uses ``multiprocessing`` and its children do; spawn imports it anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fork.tools import timed
from tests.kit.tools import set_up

if TYPE_CHECKING:
    import multiprocessing

#: A program that starts three children while it holds the lock.
STARTS_WORKERS = """
import multiprocessing
from tests.fork.workers import work, work_anew
hosts, namespace, method = sys.argv[1:]
context = multiprocessing.get_context(method)
answers = context.SimpleQueue()
target, args = work, (answers,)
if method == "spawn":
    target, args = work_anew, (hosts, namespace, answers)
with zk_lock("key") as hold:
    workers = [context.Process(target=target, args=args) for _ in range(3)]
    for worker in workers:
        worker.start()
    found = [answers.get() for _ in workers]
    for worker in workers:
        worker.join(20)
    hold.check()
    hold.verify()
    tell({"found": found, "exits": [worker.exitcode for worker in workers]})
    hear()
"""


def work(answers: multiprocessing.SimpleQueue[Any]) -> None:
    """Try for the lock of the parent, and take another that all children take."""
    from distlock import zk_lock  # noqa: PLC0415 - not before set_up

    found: dict[str, Any] = {"held": zk_lock("key").held}
    with timed(found, "busy"), zk_lock("key", timeout=0.3):
        pass
    with timed(found, "shared"), zk_lock("shared", timeout=20) as hold:
        hold.check()
        hold.verify()
        found["token"] = hold.token
    answers.put(found)


def work_anew(hosts: str, namespace: str, answers: multiprocessing.SimpleQueue[Any]) -> None:
    """The same in an interpreter that inherits nothing."""
    set_up(hosts, namespace, TIMEOUT=5)
    work(answers)
