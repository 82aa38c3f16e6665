"""Builds, checks and tags a release; uploads nothing: ``make release``.

    python .ci/release.py [--tagged]

Both distributions get the version that begins the change log, with the date of today. They are
built from a clean tree on the branch main, after the tests of the packages: those build and install
them in empty environments. With ``--tagged`` the tag is there already, as in the workflow that it
starts.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.metadata import Metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

DIST = Path("dist")
CHAOS = Path("django-distlock-chaos")
#: The folders of the distributions, and their packages.
DISTRIBUTIONS = {Path(): "distlock", CHAOS: "distlock_chaos"}


def main() -> None:
    tagged = "--tagged" in sys.argv
    changes = Path("CHANGELOG.md").read_text()
    ((version, date),) = re.findall(r"\A# .*\n(?:(?!## ).*\n)*## (\S+)(.*)", changes)
    today = datetime.now(timezone.utc).date()
    if not tagged and date != f" - {today}":
        _end_on([f"CHANGELOG.md does not date it: ## {version} - {today}"])
    _end_on([*_wrong_versions(version), *_wrong_state(f"v{version}", tagged=tagged)])
    _run(sys.executable, "-m", "pytest", "-q", "-n", "2", "tests/packaging")
    shutil.rmtree(DIST, ignore_errors=True)
    for folder in DISTRIBUTIONS:
        _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), str(folder))
    _end_on([*_wrong_files(version), *_wrong_state(f"v{version}", tagged=tagged)])
    if not tagged:
        _run("git", "tag", "--annotate", f"v{version}", "--message", f"distlock {version}")
    sys.stdout.write(f"dist/ has {version}; nothing is uploaded, and no tag is pushed.\n")


def _wrong_versions(version: str) -> Iterator[str]:
    """Yield the places with another version than the change log's latest."""
    for folder in DISTRIBUTIONS:
        project = (folder / "pyproject.toml").read_text()
        if f'\nversion = "{version}"\n' not in project:
            yield f"{folder / 'pyproject.toml'} is not {version}, the latest in CHANGELOG.md."
    if f'"django-distlock=={version}"' not in (CHAOS / "pyproject.toml").read_text():
        yield f"django-distlock-chaos does not require django-distlock=={version}."


def _wrong_state(tag: str, *, tagged: bool) -> Iterator[str]:
    """Yield what keeps this commit from being the release."""
    if _git("status", "--porcelain"):
        yield "The tree has changes that are not committed."
    if tagged:
        if tag not in _git("tag", "--points-at", "HEAD").split():
            yield f"This commit has not the tag {tag}."
        if not _git("branch", "--remotes", "--contains", "HEAD", "--list", "origin/main"):
            yield "This commit is not on the branch main."
    else:
        if _git("tag", "--list", tag):
            yield f"The tag {tag} is there already."
        if _git("branch", "--show-current") != "main":
            yield "This is not the branch main."


def _wrong_files(version: str) -> Iterator[str]:
    """Yield what is wrong with the built files: their names, metadata, and contents."""
    for folder, package in DISTRIBUTIONS.items():
        name = "django-" + package.replace("_", "-")
        stem = f"{name.replace('-', '_')}-{version}"
        files = {f"{package}/{file}" for file in _git("ls-files", cwd=folder / package).split("\n")}
        with zipfile.ZipFile(DIST / f"{stem}-py3-none-any.whl") as wheel:
            inside = {file for file in wheel.namelist() if ".dist-info/" not in file}
            raw = {"wheel": wheel.read(f"{stem}.dist-info/METADATA")}
        with tarfile.open(DIST / f"{stem}.tar.gz") as sdist:
            packed = {each.removeprefix(f"{stem}/") for each in sdist.getnames()}
            info = sdist.extractfile(f"{stem}/PKG-INFO")
            raw["sdist"] = info.read() if info else b""
        for kind, text in raw.items():
            metadata = Metadata.from_email(text, validate=True)
            if (metadata.name, str(metadata.version)) != (name, version):
                yield f"The {kind} says {metadata.name} {metadata.version}."
            if not metadata.description:
                yield f"The {kind} of {name} has no description."
        if inside != files:
            yield f"The wheel of {name} differs from the repository: {sorted(inside ^ files)}"
        if not files <= packed:
            yield f"The sdist of {name} lacks {sorted(files - packed)}"


def _git(*arguments: str, cwd: Path | None = None) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def _end_on(problems: list[str]) -> None:
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
