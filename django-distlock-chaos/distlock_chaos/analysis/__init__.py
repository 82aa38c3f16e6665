"""Judges the history of a run.

`timeline` puts the events in order, as holds, faults and calls. `checker` asks what was not
allowed, `exclusion` asks it of holds at the same time, and `report` summarises both. `edn` writes
the history for Jepsen's tools.
"""

from __future__ import annotations
