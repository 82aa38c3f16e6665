"""The owner of a lock: which thread or task asks, and what it holds.

`owner` finds the owner of the running code, also after asgiref has moved it to another thread
(`call_stack`). `hold` gives a holder the fencing token and reports a loss.
"""

from __future__ import annotations
