"""Celery tasks that go on and end when a test says so, and tell what they did on a `Stage`."""

# ruff: noqa: ARG001 - keys are for the locks

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celery import shared_task

from distlock import kazoo_client, zk_locked
from tests.kit.helpers import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

#: How long a task plays before it gives up on the test, in seconds.
PLAY_SECONDS = 60.0


class Stage:
    """A folder on which actors (tasks) and the audience (a test) leave notes for each other."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def tell(self, actor: str, *facts: object) -> None:
        """Write a line that all can read; one write, so that lines never mix."""
        line = " ".join(map(str, (time.monotonic_ns(), os.getpid(), actor, *facts)))
        with (self.folder / "play.log").open("ab", buffering=0) as log:
            log.write(f"{line}\n".encode())

    def told(self, actor: str, *facts: object) -> list[Line]:
        """The lines of an actor that begin with these facts, the first first."""
        beginning = tuple(map(str, facts))
        lines = (line for line in self.lines() if line.actor == actor)
        return [line for line in lines if line.facts[: len(beginning)] == beginning]

    def lines(self) -> list[Line]:
        log = self.folder / "play.log"
        text = log.read_text() if log.exists() else ""
        return [Line(line) for line in text.splitlines()]

    def play(self, actor: str) -> None:
        """Enter, wait until the audience lets this actor go, and leave."""
        self.tell(actor, "enter")
        eventually((self.folder / f"{actor}.go").exists, PLAY_SECONDS, f"{actor} may go")
        self.tell(actor, "leave")

    def await_entry(self, actor: str, times: int = 1, patience: float = 30) -> Line:
        """Wait until an actor has entered so often; its last entry."""
        eventually(
            lambda: len(self.told(actor, "enter")) >= times, patience, f"entry {times} of {actor}"
        )
        return self.told(actor, "enter")[times - 1]

    def let_go(self, actor: str) -> None:
        (self.folder / f"{actor}.go").touch()


class Line:
    """What an actor has told: when (nanoseconds, monotonic), in which process, and what."""

    def __init__(self, text: str) -> None:
        when, pid, self.actor, *facts = text.split(" ")
        self.when, self.pid, self.facts = int(when), int(pid), tuple(facts)

    def __repr__(self) -> str:
        return f"<{self.actor} in {self.pid}: {' '.join(self.facts)}>"


def stage() -> Stage:
    """The stage of this worker."""
    return Stage(os.environ["STAGE"])


task: Callable[[Callable[..., Any]], Any] = shared_task


@task
@zk_locked("<key>", on_busy="wait", timeout=PLAY_SECONDS)
def hold(key: str, actor: str) -> str:
    """Hold the lock until the audience lets the actor go."""
    stage().play(actor)
    return actor


@task
def play(actor: str) -> str:
    """Do the same without a lock."""
    stage().play(actor)
    return actor


@task
@zk_locked("<key>", on_busy="wait", timeout=PLAY_SECONDS)
def pass_by(key: str, actor: str) -> str:
    """Hold the lock for an instant."""
    stage().tell(actor, "enter", key)
    stage().tell(actor, "leave", key)
    return actor


@task
def join(party: str, actor: str) -> str:
    """Join a party of kazoo's, and stay until the audience lets the actor go."""
    kazoo_client().Party(party, actor).join()
    stage().play(actor)
    return actor
