"""Keeps the last events of all locks and processes in the database, as a slow-query log does.

`receivers` connects to the app's signals if an alias has the setting ``HISTORY``. Each event that
is worth a row goes to the `recorder`, whose thread writes batches of `models.LockEvent` and prunes
them. The admin shows them.
"""

from __future__ import annotations
