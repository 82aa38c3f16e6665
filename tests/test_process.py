from __future__ import annotations

import sys

import pytest

from distlock.process import interpreter


def test_within_another_program_the_interpreter_is_the_one_that_it_was_built_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """uWSGI would take the arguments for its own, and the socket for one to serve."""
    assert interpreter() == sys.executable
    for other in ("/usr/bin/uwsgi", "", None):
        monkeypatch.setattr(sys, "executable", other)
        assert interpreter() == f"{sys.base_exec_prefix}/bin/python3"
