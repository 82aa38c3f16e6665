"""The tests of the recipes on the embedded server."""

from __future__ import annotations

import pytest

from tests.kit.borrowed import RECIPES, borrow

pytestmark = [pytest.mark.deep, pytest.mark.usefixtures("tree")]

#: Its tests want a fixture of their module.
MUTEX = RECIPES["mutex"].replace(" test_processes", "")

#: Asks the server for its count of packets.
COUNTS = ["test_a_release_sends_something_to_one_waiting_client_only"]

globals().update(borrow({**RECIPES, "mutex": MUTEX}, but=COUNTS))
