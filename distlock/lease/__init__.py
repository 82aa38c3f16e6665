"""Leases: locks that outlive their process, with an expiry.

`persistent` is what users take, and `hold` what they get. `acquisition` waits until a lease is free
or has expired; an `operation` reads, renews or returns one. `nodes` knows how a lease is written
down, `blocks` which ``with`` blocks are under way, and `sweep` removes what has expired.
"""

from __future__ import annotations
