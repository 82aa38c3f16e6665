"""Tenants of a site, for ``KEY_PREFIX``."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

tenant: ContextVar[Any] = ContextVar("tenant", default="public")

#: A value of ``KEY_PREFIX``.
PATH: Final = f"{__name__}.name_of_tenant"


def name_of_tenant() -> Any:
    return tenant.get()
