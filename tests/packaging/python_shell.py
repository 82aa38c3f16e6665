"""An interactive Python shell, and whether it writes what a page shows."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import termios
from typing import TYPE_CHECKING, Any, Final

from tests.packaging.environment import PATIENCE

if TYPE_CHECKING:
    from typing_extensions import Self

#: What differs from run to run in the output that the page shows, and nothing else.
_DIFFERS: Final = {
    r"<?\b\d+\.\d+ ?s\b": "<seconds>",  # "<" in the first seconds of a hold
    r"(?<=Retry-After: )\d|(?<=Try again in )\d": "<seconds>",
    r"\S+:\d+(?= MainThread)": "<process>",
    r" +": " ",
}


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
