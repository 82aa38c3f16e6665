"""The package stays easy to find one's way in: short files, small rooms."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import distlock

PACKAGE: Final = Path(distlock.__file__).parent

MOST_LINES: Final = 400
#: Beside the ``__init__`` of the room.
MOST_MODULES: Final = 15


def test_no_file_is_long() -> None:
    lines = {
        path.relative_to(PACKAGE).as_posix(): len(path.read_text().splitlines())
        for path in PACKAGE.rglob("*.py")
    }
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_no_room_is_crowded() -> None:
    modules = Counter(
        path.parent.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if path.stem != "__init__"
    )
    assert {room: count for room, count in modules.items() if count > MOST_MODULES} == {}
