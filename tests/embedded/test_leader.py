"""The tests of tests/leader on the embedded server."""

from __future__ import annotations

import pytest

from tests.kit.borrowed import borrow
from tests.leader import test_leader, test_run

pytestmark = pytest.mark.usefixtures("tree")

globals().update(borrow(test_leader, test_run))
