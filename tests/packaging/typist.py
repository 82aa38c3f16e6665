"""Somebody who types what a page says."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from distlock_chaos.ports import free_ports
from tests.kit.embedded import end_in, folder_in
from tests.kit.helpers import ROOT, eventually
from tests.packaging.environment import PATIENCE, variables
from tests.packaging.pages import Block
from tests.packaging.python_shell import PythonShell, assert_shown

if TYPE_CHECKING:
    from typing_extensions import Self

_SITE: Final = "python manage.py runserver"
_ZOOKEEPER: Final = "python manage.py distlock server"
#: The commands that run on, and what they write once they are ready.
_RUN_ON: Final = {
    _SITE: "Quit the server with",
    _ZOOKEEPER: "ZooKeeper ready",
    "celery -A mysite worker --loglevel INFO": " ready.",
}
#: A command that asks questions, with their answers.
_ASKS: Final = {"python manage.py createsuperuser": " --noinput --email admin@example.com"}
_SHELL: Final = "python manage.py shell -v 0"


class Typist:
    """Works in `folder`, on ports that are free where the page names the usual ones.

    A virtual environment ``.venv`` in the folder is activated first.

    :param installed: the commands that somebody else has carried out: those of the installation
    """

    def __init__(self, folder: Path, *, installed: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.site, self.zookeeper = (f"127.0.0.1:{port}" for port in free_ports(2))
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
                    self._said = self.run(command)
            case "pycon":
                assert self._shell, "There is no Python shell yet"
                self._shell.type(block.text)

    def run(self, command: str, *, status: int | None = 0) -> str:
        """Run a command to its end, or start one that runs on; return what it has written so far.

        :param status: which it ends with; None for any
        """
        began = time.monotonic()
        output = "" if command in self._installed else self._run(command, status)
        self.typed.append((command, time.monotonic() - began))
        return output

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace what is in a file."""
        path = self.folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

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
        log = self._logs.get(_SITE)
        return log.read_text().count(_RUN_ON[_SITE]) if log else 0

    def _run(self, command: str, status: int | None) -> str:
        line = self._here(command)
        if command in _RUN_ON:
            return self._running.enter_context(self._started(command, line))
        if command == _SHELL:
            self._shell = self._running.enter_context(PythonShell(self._popen_arguments(line)))
            return ""
        run = subprocess.run(
            **self._popen_arguments(line),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE * 2,
            check=False,
        )
        assert status in {None, run.returncode}, f"{line}\n{run.stdout}"
        return str(run.stdout)

    def _here(self, command: str) -> str:
        """Return the command with the ports that are used here, and the path of this clone."""
        if command == _SITE:
            return f"{command} {self.site}"
        if command == _ZOOKEEPER:
            return f"{command} --port {self.zookeeper.rpartition(':')[2]}"
        line = command.replace("127.0.0.1:8000", self.site)
        return line.replace("/path/to/the/clone", str(ROOT)) + _ASKS.get(command, "")

    @contextmanager
    def _started(self, command: str, line: str) -> Iterator[str]:
        ready = _RUN_ON[command]
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
                said = log.read_text()
                assert ready in said, said
                yield said
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGINT)  # Ctrl-C reaches all of a terminal
                process.wait(PATIENCE)

    def _popen_arguments(self, line: str) -> dict[str, Any]:
        activate = self.folder / ".venv/bin/activate"
        return {
            "args": ["/bin/bash", "-c", f". {activate}; {line}" if activate.exists() else line],
            "cwd": self.folder,
            "env": variables(
                PYTHONUNBUFFERED="1",
                PYTHONWARNINGS="ignore::UserWarning:celery.platforms",  # for root
                TERM="dumb",
                TMPDIR=str(self.folder),  # where the embedded server has its address
                DJANGO_SUPERUSER_USERNAME="admin",
                DJANGO_SUPERUSER_PASSWORD="secret",
            ),
        }
