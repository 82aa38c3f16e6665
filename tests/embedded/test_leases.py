"""The tests of tests/lease on the embedded server."""

from __future__ import annotations

import pytest

from tests.kit.borrowed import borrow
from tests.lease import test_bad_input, test_blocks, test_expiry, test_leases

pytestmark = pytest.mark.usefixtures("tree")

globals().update(borrow(test_leases, test_blocks, test_expiry, test_bad_input))
