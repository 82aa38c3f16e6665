"""The admin pages: which process holds each lock, which wait for it, and since when."""

from __future__ import annotations

from . import model_admin as model_admin
