"""The tests of tests/rwlock on the embedded server."""

from __future__ import annotations

import pytest

from tests.kit.borrowed import borrow
from tests.rwlock import test_downgrade, test_ports, test_processes, test_rwlock, test_upgrade

pytestmark = pytest.mark.usefixtures("tree")

globals().update(borrow(test_rwlock, test_downgrade, test_upgrade, test_ports, test_processes))
