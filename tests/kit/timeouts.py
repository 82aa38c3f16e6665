"""`asyncio.timeout`, which is new in Python 3.11."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    from asyncio import timeout as async_timeout
else:
    from async_timeout import timeout as async_timeout  # comes with the client of Redis

__all__ = ["async_timeout"]
