"""The admin pages: which process holds each lock, which wait for it, and since when.

`model_admin` has the views, and Django's autodiscovery registers it from here. Each request makes
one `reading`, within a budget of seconds, for all parts of a page: the list of locks, or one lock,
and the deadlocks (`drawing`). `history` shows the events that `distlock.history` has
recorded.
"""

from __future__ import annotations

from . import model_admin as model_admin
