"""Leases: locks that outlive their process, with an expiry.

`persistent` has the lease that users acquire, and `hold` the result and its ``with`` blocks.
`acquisition` waits until a lease is free or has expired; an `operation` reads, renews or releases
one. `nodes` reads and writes a lease's node, and `sweep` removes expired leases.
"""

from __future__ import annotations
