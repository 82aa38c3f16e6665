"""Types the tutorial as a new user does, and writes the seconds into it: `make tutorial`.

Unlike the test, it installs the clone with pip, from the package index that pip is set up for.
"""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.pages import fill
from tests.packaging.pages import TUTORIAL, blocks
from tests.packaging.typist import Typist

if TYPE_CHECKING:
    from collections.abc import Sequence


VERSIONS = (
    "import celery, django, platform;"
    "print('Python', platform.python_version() + ', Django', django.__version__ + ', Celery',"
    " celery.__version__, end='')"
)


def main() -> None:
    with TemporaryDirectory() as folder, Typist(Path(folder)) as reader:
        for block in blocks(TUTORIAL):
            reader.type(block)
        typed = tuple(reader.typed)
        versions = reader.run(f'python -c "{VERSIONS}"')
    files = {block.file for block in blocks(TUTORIAL) if block.file}
    fill(
        TUTORIAL,
        f"{len(typed)} commands took {sum(seconds for _, seconds in typed):.0f} s, "
        f"and there are {len(files)} files to write.\n"
        f"Measured on {datetime.now(timezone.utc):%-d %B %Y}, on a machine with {os.cpu_count()} "
        f"cores that had other work, too, with {versions}.\n"
        "A command that runs on counts until it is ready.\n\n"
        + "".join(f"{row}\n" for row in rows(typed)),
        "typed",
    )


def rows(typed: Sequence[tuple[str, float]]) -> list[str]:
    """Return the lines of a table of commands and seconds."""
    return [
        "| command | seconds |",
        "|---|--:|",
        *(f"| `{command}` | {seconds:.1f} |" for command, seconds in typed),
    ]


if __name__ == "__main__":
    main()
