"""The watchdog beside a command of `manage.py distlock run`; the rest is in `tests/commands`."""

from __future__ import annotations

from tests.kit.helpers import spawn_python
from tests.kit.losses import said

#: Becomes a command; its watchdog tells whether it is in the command's process group.
BECOMES = """
import os
from distlock.management import watchdog

def watch(group, pipe, moment):
    print("in the group" if os.getpgrp() == commands else "elsewhere", flush=True)

commands = os.getpgrp()
watchdog._watch = watch
watchdog._become(["true"], pipe=os.open(os.devnull, os.O_RDONLY), moment=0.0)
"""


def test_the_watchdog_is_not_in_the_commands_process_group_for_a_moment() -> None:
    """It would be taken for what the command has left behind, and get what is sent to the group."""
    with spawn_python(BECOMES) as process:
        assert said(process) == "elsewhere"
        assert process.wait(30) == 0
