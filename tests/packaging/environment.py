"""A virtual environment as a user has it: the built wheel, what it requires, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

#: For a command on a busy machine, in seconds.
PATIENCE = 120.0


def variables(**more: str) -> dict[str, str]:
    """Return the variables of a user: nothing of the tests' settings, no path to the checkout."""
    inherited = ("PATH", "HOME", "JAVA_HOME", "ZOOKEEPER_HOME", "PGHOST", "PGPORT", "PGUSER")
    usual = {name: os.environ[name] for name in inherited if name in os.environ}
    return {**usual, "LC_ALL": "C.UTF-8", **more}


class Environment:
    """Needs no network: what the wheel requires is linked from the environment of the tests.

    Only what its metadata names is there, so a requirement that it forgets is missed.

    :param extras: of the wheel
    """

    def __init__(self, folder: Path, wheel: Path, *, extras: Sequence[str] = ()) -> None:
        self.folder = folder
        venv.create(folder, symlinks=True)
        self.python = folder / "bin/python"
        (self.packages,) = folder.glob("lib/python*/site-packages")
        self.install(wheel)
        (self.distribution,) = metadata.distributions(path=[str(self.packages)])
        self._link_requirements_of(self.distribution, extras)

    def install(self, wheel: Path) -> None:
        """Install a wheel without what it requires."""
        pip = f"-m pip --python {self.python} --disable-pip-version-check --quiet install"
        subprocess.run(
            [sys.executable, *pip.split(), "--no-index", "--no-deps", wheel],
            check=True,
            timeout=PATIENCE,
        )

    def run(self, *arguments: str | Path, cwd: Path) -> str:
        """Run this Python, which ends with status 0; return all that it has written."""
        run = subprocess.run(
            [self.python, *arguments],
            cwd=cwd,
            env=variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert run.returncode == 0, run.stdout
        return run.stdout

    def _link_requirements_of(
        self, distribution: metadata.Distribution, extras: Sequence[str] = ()
    ) -> None:
        for requirement in map(Requirement, distribution.requires or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ["", *extras]):
                self._link(metadata.distribution(requirement.name), sorted(requirement.extras))

    def _link(self, distribution: metadata.Distribution, extras: Sequence[str]) -> None:
        tops = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        links = {self.packages / top: distribution.locate_file(top) for top in tops}
        if all(link.is_symlink() for link in links):
            return
        for link, target in links.items():
            link.symlink_to(str(target))
        for script in distribution.entry_points.select(group="console_scripts"):
            self._write_script(script)
        self._link_requirements_of(distribution, extras)

    def _write_script(self, script: metadata.EntryPoint) -> None:
        path = self.python.with_name(script.name)
        path.write_text(
            f"#!{self.python}\nfrom {script.module} import {script.attr}\n{script.attr}()\n"
        )
        path.chmod(0o755)
