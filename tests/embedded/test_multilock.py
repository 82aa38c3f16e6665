"""The tests of tests/multilock on the embedded server."""

from __future__ import annotations

import pytest

from tests.kit.borrowed import borrow
from tests.multilock import test_mistakes, test_multilock, test_ports, test_processes

pytestmark = pytest.mark.usefixtures("tree")

globals().update(borrow(test_multilock, test_mistakes, test_ports, test_processes))
