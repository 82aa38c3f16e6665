"""Somebody who types `docs/tutorial.md` from the first line to the last."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from distlock.testing.ports import free_ports
from tests.kit.embedded import end_in, folder_in
from tests.kit.helpers import ROOT, eventually
from tests.packaging.environment import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typing_extensions import Self

PAGE = ROOT / "docs/tutorial.md"

_BLOCK = re.compile(
    r"(?m)(?P<lead>.*)\n\n```(?P<language>\w*)\n(?P<text>(?:(?!```).*\n)*?)```$|^```.*"
)
_FILE = re.compile(r"(?P<end>at the end of )?`(?P<name>[\w./]+)`:$")
#: The commands that run on, and what they write once they are ready.
_RUN_ON: Final = {
    "python manage.py runserver": "Quit the server with",
    "celery -A mysite worker --loglevel INFO": " ready.",
}
#: A command that asks questions, with their answers.
_ASKS: Final = {"python manage.py createsuperuser": " --noinput --email admin@example.com"}
_SHELL: Final = "python manage.py shell -v 0"
#: What differs from run to run in the output that the page shows, and nothing else.
_DIFFERS: Final = {
    r"\b\d+\.\d+ ?s\b": "<seconds>",
    r"(?<=Retry-After: )\d|(?<=Try again in )\d": "<seconds>",
    r"\S+:\d+(?= MainThread)": "<process>",
    r" +": " ",
}


class Block(NamedTuple):
    """A fenced block: a file, commands, input of a Python shell, or the output before it."""

    kind: str
    text: str
    file: str = ""
    appended: bool = False


def blocks() -> Iterator[Block]:
    """Yield the blocks of the page, in order.

    :raises ValueError: nobody knows what a block is
    """
    for found in _BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        lead, language, text = found["lead"], found["language"], found["text"]
        file = _FILE.search(lead or "")
        if language in {"python", "html"} and file:
            yield Block("file", text, file["name"], bool(file["end"]))
        elif language in {"sh", "pycon", "text"}:
            yield Block(language, text)
        else:
            raise ValueError(f"What is this block for? {found[0]}")


def alike(text: str) -> str:
    """Return the text without what differs from run to run."""
    for pattern, name in _DIFFERS.items():
        text = re.sub(pattern, name, text)
    return text.strip()


def assert_shown(expected: str, actual: str) -> None:
    """Fail unless the page shows this output; its line ``…`` stands for any lines."""
    pattern = r"[\s\S]*?".join(map(re.escape, re.split("(?m)^…$", alike(expected))))
    assert re.fullmatch(pattern, alike(actual)), (
        f"The page shows:\n{expected}\nThis came:\n{actual}"
    )


class Typist:
    """Works in `folder`, on a free port where the page names the usual one.

    :param installed: the commands that somebody else has carried out: those of the installation
    """

    def __init__(self, folder: Path, *, installed: tuple[str, ...] = ()) -> None:
        self.folder = folder
        (port,) = free_ports(1)
        self.site = f"127.0.0.1:{port}"
        self._installed = installed
        self._said = ""
        self._logs: dict[str, Path] = {}
        self._shell: PythonShell | None = None
        #: Every command, and the seconds that it took: to its end, or until it was ready.
        self.typed: list[tuple[str, float]] = []
        self._running = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()
        end_in(folder_in(self.folder))

    def type(self, block: Block) -> None:
        """Do what a block wants: write, run, or compare."""
        match block.kind:
            case "file":
                self._write(block)
            case "text":
                assert_shown(block.text, self._said)
            case "sh":
                for command in block.text.splitlines():
                    began = time.monotonic()
                    self._run(command)
                    self.typed.append((command, time.monotonic() - began))
            case "pycon":
                assert self._shell, "There is no Python shell yet"
                self._shell.type(block.text)

    def _write(self, block: Block) -> None:
        path = self.folder / block.file
        ready, existed = self._times_ready(), path.exists()
        before = path.read_text() + "\n" if block.appended else ""
        path.write_text(before + block.text)
        if ready and existed and path.name != "tests.py":
            self._await_reload(path, ready)

    def _await_reload(self, changed: Path, ready: int) -> None:
        """Wait until the site, which was ready so many times, has loaded itself again."""
        ends = time.monotonic() + PATIENCE
        while self._times_ready() == ready:
            assert time.monotonic() < ends, "The site has not loaded itself again"
            with suppress(AssertionError):
                eventually(lambda: self._times_ready() > ready, 3)
                return
            # The change came before the site's first look at its files, for which readers are slow.
            changed.touch()

    def _times_ready(self) -> int:
        command = "python manage.py runserver"
        log = self._logs.get(command)
        return log.read_text().count(_RUN_ON[command]) if log else 0

    def _run(self, command: str) -> None:
        if command in self._installed:
            return
        line = self._here(command)
        if command in _RUN_ON:
            self._running.enter_context(self._started(command, line, _RUN_ON[command]))
        elif command == _SHELL:
            self._shell = self._running.enter_context(PythonShell(self._popen_arguments(line)))
        else:
            self._said = self.output_of(line + _ASKS.get(command, ""))

    def _here(self, command: str) -> str:
        """Return the command with the port of this site and the path of this clone."""
        if command == "python manage.py runserver":
            return f"{command} {self.site}"
        return command.replace("127.0.0.1:8000", self.site).replace("/path/to/the/clone", str(ROOT))

    def output_of(self, line: str) -> str:
        """Run a command to its end, and return all that it has written."""
        run = subprocess.run(
            **self._popen_arguments(line),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE * 2,
            check=False,
        )
        assert run.returncode == 0, f"{line}\n{run.stdout}"
        return str(run.stdout)

    @contextmanager
    def _started(self, command: str, line: str, ready: str) -> Iterator[None]:
        log = self._logs[command] = self.folder / f"terminal-{len(self._logs)}.log"
        with (
            log.open("w") as output,
            subprocess.Popen(
                **self._popen_arguments(line),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process,
        ):
            try:
                eventually(
                    lambda: ready in log.read_text() or process.poll() is not None, PATIENCE, ready
                )
                assert ready in log.read_text(), log.read_text()
                yield
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGINT)  # Ctrl-C reaches all of a terminal
                process.wait(PATIENCE)

    def _popen_arguments(self, line: str) -> dict[str, Any]:
        inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        activate = self.folder / ".venv/bin/activate"
        return {
            "args": ["bash", "-c", f". {activate}; {line}" if activate.exists() else line],
            "cwd": self.folder,
            "env": {
                **inherited,
                "LC_ALL": "C.UTF-8",
                "PYTHONUNBUFFERED": "1",
                "PYTHONWARNINGS": "ignore::UserWarning",  # Celery's, for root
                "TERM": "dumb",
                "TMPDIR": str(self.folder),  # where the embedded server has its address
                "DJANGO_SUPERUSER_USERNAME": "admin",
                "DJANGO_SUPERUSER_PASSWORD": "secret",
            },
        }


class PythonShell:
    """An interactive shell on a terminal of its own."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._terminal, theirs = pty.openpty()
        attributes = termios.tcgetattr(theirs)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(theirs, termios.TCSANOW, attributes)
        self._process = subprocess.Popen(
            **arguments, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        self._read()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._terminal)
        self._process.kill()
        self._process.wait(PATIENCE)

    def type(self, transcript: str) -> None:
        """Type the lines with a prompt, and compare what follows each."""
        for line, shown in re.findall(r"(?m)^>>> (.*)\n((?:(?!>>> ).*\n)*)", transcript):
            os.write(self._terminal, f"{line}\n".encode())
            if line == "exit()":
                self._process.wait(PATIENCE)
            else:
                assert_shown(shown, self._read().removeprefix(line))

    def _read(self) -> str:
        """Return what the shell writes before its next prompt."""
        said = ""
        while not said.endswith(">>> "):
            readable, _, _ = select.select([self._terminal], [], [], PATIENCE)
            assert readable, said
            said += os.read(self._terminal, 1000).decode()
        return said.removesuffix(">>> ").replace("\r\n", "\n")
