"""A virtual environment as a user has it: the built wheel, what it requires, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from importlib import metadata
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

if TYPE_CHECKING:
    from pathlib import Path

#: For a command on a busy machine, in seconds.
PATIENCE = 120.0


class Environment:
    """Needs no network: what the wheel requires is linked from the environment of the tests.

    Only what its metadata names is there, so a requirement that it forgets is missed.
    """

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, symlinks=True)
        self.python = folder / "bin/python"
        (self.packages,) = folder.glob("lib/python*/site-packages")
        pip = f"-m pip --python {self.python} --disable-pip-version-check --quiet install"
        subprocess.run(
            [sys.executable, *pip.split(), "--no-index", "--no-deps", wheel],
            check=True,
            timeout=PATIENCE,
        )
        (self.distribution,) = metadata.distributions(path=[str(self.packages)])
        self._link_requirements_of(self.distribution)

    def run(self, *arguments: str | Path, cwd: Path, **options: Any) -> str:
        """Run this Python; return what it has written, and fail with it where it fails."""
        ran = self.start(*arguments, cwd=cwd, **options)
        output, _ = ran.communicate(timeout=PATIENCE)
        assert ran.returncode == 0, output
        return output

    def start(
        self, *arguments: str | Path, cwd: Path, env: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start this Python, with one pipe for all that it writes."""
        # Nothing of the tests' own settings, and no path to the checkout.
        inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        java = {name: text for name, text in os.environ.items() if name.endswith("_HOME")}
        return subprocess.Popen(
            [self.python, "-u", *arguments],
            cwd=cwd,
            env={**inherited, **java, "LC_ALL": "C.UTF-8", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _link_requirements_of(self, distribution: metadata.Distribution) -> None:
        for requirement in map(Requirement, distribution.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                self._link(metadata.distribution(requirement.name))

    def _link(self, distribution: metadata.Distribution) -> None:
        tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        links = {self.packages / top: distribution.locate_file(top) for top in tops}
        if all(link.is_symlink() for link in links):
            return
        for link, target in links.items():
            link.symlink_to(str(target))
        self._link_requirements_of(distribution)
