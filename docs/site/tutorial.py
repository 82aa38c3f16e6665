"""Types the tutorial as a new user does, and writes the time into it: `make tutorial`.

Unlike the test, it installs the clone with pip, from the package index that pip is set up for.
"""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.pages import fill
from tests.packaging.pages import TUTORIAL, blocks
from tests.packaging.typist import Typist

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
    fill(
        TUTORIAL,
        f"`make tutorial` took {sum(seconds for _, seconds in typed):.0f} s for the {len(typed)} "
        f"commands, on {datetime.now(timezone.utc):%-d %B %Y}, with {os.cpu_count()} cores, "
        f"{versions}.\n",
        "typed",
    )
    for command, seconds in typed:
        print(f"{seconds:6.2f} s  {command}")  # noqa: T201 - the result of the program


if __name__ == "__main__":
    main()
