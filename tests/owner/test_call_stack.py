"""The look at all stacks that finds out on whose behalf code runs."""

from __future__ import annotations

import gc

from distlock.owner.call_stack import current_frames
from tests.kit.helpers import spawn_python
from tests.kit.tools import PATIENCE

# Threads whose frames are new at each look, and rubbish with a thread-local in it (as asgiref's
# `Local` is) that is collected whenever something is allocated.
LOOKS_AMONG_RUBBISH = """
import gc, threading, time
import django
django.setup()
from distlock.owner.call_stack import current_frames

class Rubbish:
    def __init__(self):
        self.local, self.me = threading.local(), self
        self.local.used = True

def nap():
    time.sleep(0.00001)

def move():
    while True:
        nap()

for _ in range(8):
    threading.Thread(target=move, daemon=True).start()
gc.set_threshold(1, 1, 1)
for _ in range(2_000):
    Rubbish()
    assert threading.get_ident() in current_frames()
print("looked", flush=True)
"""


def test_a_garbage_collection_does_not_freeze_the_process_that_looks_at_its_stacks() -> None:
    with spawn_python(LOOKS_AMONG_RUBBISH) as process:
        said, errors = process.communicate(timeout=PATIENCE * 2)
    assert said == "looked\n", errors


def test_a_look_leaves_the_garbage_collector_as_it_was() -> None:
    assert gc.isenabled()
    assert current_frames()
    assert gc.isenabled()
    gc.disable()
    try:
        assert current_frames()
        assert not gc.isenabled()
    finally:
        gc.enable()
