"""Java's Curator on the embedded server, beside ours: the tests of tests/interop."""

from __future__ import annotations

import pytest

from tests.kit.borrowed import borrow

pytestmark = pytest.mark.parametrize("newer", [True], indirect=True, ids=["5.7"])

globals().update(borrow({"interop": "test_java_mutex test_java_rwlock test_java_semaphore"}))
