"""The package stays easy to find one's way in: small rooms."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import distlock

PACKAGE: Final = Path(distlock.__file__).parent

#: Beside the ``__init__`` of the room.
MOST_MODULES: Final = 16


def test_no_room_is_crowded() -> None:
    modules = Counter(
        path.parent.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if path.stem != "__init__"
    )
    assert {room: count for room, count in modules.items() if count > MOST_MODULES} == {}
