"""The same four workers, with a session reaper beside their master."""

from __future__ import annotations

from typing import Any

from tests.testproject.gunicorn_conf import *  # noqa: F403 - that is how gunicorn reads it


def on_starting(server: Any) -> None:  # noqa: ARG001 - gunicorn gives it by name
    from distlock.session.reaper import start_session_reaper  # noqa: PLC0415 - in the master only

    start_session_reaper()
