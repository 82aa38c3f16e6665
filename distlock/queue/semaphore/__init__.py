"""A semaphore: `machine` takes permits in a few steps over the queue; `limits` knows how many."""

from __future__ import annotations
