"""Leases: locks that outlive their process, with an expiry.

`persistent` has the lease that users acquire, and `hold` the result and its ``with`` blocks. An
`operation` acquires, renews, releases or reads one. `nodes` reads and writes a lease's node, and
`sweep` removes expired leases.
"""

from __future__ import annotations
