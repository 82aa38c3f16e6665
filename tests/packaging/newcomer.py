"""Somebody who reads `docs/how-to/from-nothing.md` and types what it says."""

from __future__ import annotations

import os
import re
import shlex
import signal
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

from distlock.testing.ports import free_ports
from tests.kit.embedded import end_in, folder_in
from tests.kit.helpers import ROOT, eventually
from tests.packaging.environment import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typing_extensions import Self

    from tests.packaging.environment import Environment

PAGE = ROOT / "docs/how-to/from-nothing.md"

_BLOCK = re.compile(
    r"(?:(?P<end>At the end of )?`(?P<file>[^`\n]+)`:\n\n)?(?:<!--.*-->\n)?"
    r"^```(?P<language>\w*)\n(?P<text>(?:.*\n)*?)```$",
    re.MULTILINE,
)


class Block(NamedTuple):
    """A fenced block: lines of a file, or commands."""

    file: str
    appended: bool
    text: str


def blocks() -> list[Block]:
    """The blocks of the page, in order."""
    return [
        Block(found["file"] if found["language"] else "", bool(found["end"]), found["text"])
        for found in _BLOCK.finditer(PAGE.read_text(encoding="utf-8"))
    ]


class Newcomer:
    """Works in `folder`, on ports that are free where the page names the usual ones."""

    def __init__(self, environment: Environment, folder: Path) -> None:
        self.environment = environment
        self.folder = folder
        zookeeper, site = free_ports(2)
        self.zookeeper = f"127.0.0.1:{zookeeper}"
        self.site = f"127.0.0.1:{site}"
        self._variables = {
            "TMPDIR": str(folder),  # where the embedded server has its address
            "DJANGO_SUPERUSER_USERNAME": "admin",
            "DJANGO_SUPERUSER_PASSWORD": "secret",
        }
        #: Every command, and for how many seconds the machine was busy with it.
        self.typed: list[tuple[str, float]] = []
        self._running = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()
        end_in(folder_in(self.folder))

    def write(self, block: Block) -> None:
        """Put the lines where the page says."""
        path = self.folder / block.file
        before = path.read_text() + "\n" if block.appended else ""
        path.write_text(before + self._here(block.text))

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace what is in a file."""
        path = self.folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def type(self, command: str, *, status: int = 0) -> str:
        """Run one command to its end, or start one that runs on until it is ready."""
        began = time.monotonic()
        output = self._type(shlex.split(self._here(command)), status)
        self.typed.append((command, time.monotonic() - began))
        return output

    def buy(self) -> tuple[list[int], str]:
        """Let two buyers come at once; return the two answers, and what the first of them says."""
        url = next(part for part in shlex.split(self._here(_curl())) if part.startswith("http"))
        answers: list[tuple[int, str]] = []
        buyers = [
            threading.Thread(target=lambda: answers.append(_get(url)), daemon=True)
            for _ in range(2)
        ]
        for buyer in buyers:
            buyer.start()
        for buyer in buyers:
            buyer.join(PATIENCE)
        answers.sort()
        return [status for status, _ in answers], answers[0][1]

    def get(self, path: str) -> int:
        """Ask the site for a page."""
        return _get(f"http://{self.site}{path}")[0]

    def _here(self, text: str) -> str:
        return text.replace("127.0.0.1:2181", self.zookeeper).replace("127.0.0.1:8000", self.site)

    def _type(self, words: list[str], status: int) -> str:
        match words:
            case ["django-admin", *rest]:
                words = ["-m", "django", *rest]
            case ["python", "manage.py", "distlock", "server"]:
                port = self.zookeeper.rpartition(":")[2]
                return self._start([*words[1:], "--port", port], "ZooKeeper ready")
            case ["python", "manage.py", "runserver"]:
                return self._start([*words[1:], self.site], "Quit the server with")
            case ["python", "manage.py", "createsuperuser"]:
                words = [*words[1:], "--noinput", "--email=admin@example.com"]
            case ["python", *rest]:
                words = rest
            case _:
                raise AssertionError(f"Nobody knows how to type {shlex.join(words)}")
        return self.environment.run(
            *words, cwd=self.folder, status=status, variables=self._variables
        )

    def _start(self, words: list[str], ready: str) -> str:
        return self._running.enter_context(self._started(words, ready))

    @contextmanager
    def _started(self, words: list[str], ready: str) -> Iterator[str]:
        log = self.folder / f"terminal-{len(self.typed)}.log"
        with (
            log.open("w") as output,
            self.environment.start(
                *words, cwd=self.folder, variables=self._variables, output=output
            ) as process,
        ):
            try:
                eventually(
                    lambda: ready in log.read_text() or process.poll() is not None, PATIENCE, ready
                )
                said = log.read_text()
                assert ready in said, said
                yield said
            finally:
                os.killpg(process.pid, signal.SIGINT)  # Ctrl-C reaches all of a terminal
                process.wait(PATIENCE)


def _curl() -> str:
    return next(block.text for block in blocks() if block.text.startswith("curl"))


def _get(url: str) -> tuple[int, str]:
    try:
        with urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310 - it is http
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:  # runserver reloads
        return 0, ""
