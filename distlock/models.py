"""Represents a lock to Django's permissions and the admin's log, without a table.

The locks are in ZooKeeper. The model gives them a content type, three permissions, and a name for
the admin's log. django-rq has its admin page in the same way.
"""

from __future__ import annotations

from typing import ClassVar
from urllib.parse import quote, unquote

from django.db import models
from django.utils.translation import gettext_lazy as _

from .inspection.state import key_of
from .keys.znodes import printable


class Lock(models.Model):
    """A lock by its place, held or not: ``default:stock%3A42``."""

    id = models.CharField(_("place"), primary_key=True, max_length=500)

    class Meta:
        managed = False
        verbose_name = _("lock")
        verbose_name_plural = _("locks")
        default_permissions = ("view",)
        permissions: ClassVar = [
            ("revoke_lock", "Can ask for the release of a lock"),
            ("break_lock", "Can break a lock"),
        ]

    def __str__(self) -> str:
        return printable(self.key)

    @classmethod
    def at(cls, using: str, name: str) -> Lock:
        """Return the lock of an alias by its `snapshot.Lock.name`."""
        return cls(id=f"{quote(using, safe='')}:{name}")

    @property
    def using(self) -> str:
        """Its alias in ``DISTLOCK``."""
        return unquote(self.id.partition(":")[0])

    @property
    def name(self) -> str:
        """Its place under the alias's namespace."""
        return self.id.partition(":")[2]

    @property
    def key(self) -> str:
        """Its key, as far as the tree has kept it."""
        return key_of(self.name)[0]
