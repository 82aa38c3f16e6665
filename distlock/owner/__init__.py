"""The owner of a lock: which thread or task asks, and what it holds.

`owner` finds the owner of the code that runs, also where asgiref has moved it to another thread
(`call_stack`). `hold` is what a holder has in hand. `process` tells a process from its forked
children.
"""

from __future__ import annotations
