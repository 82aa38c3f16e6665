"""Defines the models: a lock, which has no table, and an event of the history, which has one."""

from __future__ import annotations

from typing import ClassVar, Final
from urllib.parse import quote, unquote

from django.db import models
from django.utils.translation import gettext_lazy as _

from .inspection.state import LEADER, LEASES, key_of
from .text import printable


class Lock(models.Model):
    """A lock by its place, held or not: ``default:stock%3A42``. It is in ZooKeeper.

    The model gives it a content type, permissions, and a name for the admin's log.
    """

    id = models.CharField(_("place"), primary_key=True, max_length=500)

    class Meta:
        managed = False
        verbose_name = _("lock")
        verbose_name_plural = _("locks")
        default_permissions = ("view",)
        permissions: ClassVar = [
            ("revoke_lock", "Can ask for the release of a lock"),
            ("break_lock", "Can break a lock"),
            ("limit_lock", "Can change the limit of a semaphore"),
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


class LockEvent(models.Model):
    """An event of a lock in some process, as the `history` keeps it. Times are seconds."""

    #: The most characters of a text, and of the details.
    LONGEST: Final = 255
    LONGEST_DETAIL: Final = 1000

    class Kind(models.TextChoices):
        """The kinds of events."""

        HELD = "held", _("held and released")
        BUSY = "busy", _("waited in vain")
        FAILED = "failed", _("failed")
        DEADLOCK = "deadlock", _("gave way in a deadlock")
        LOST = "lost", _("lost")

    using = models.CharField(_("alias"), max_length=LONGEST)
    #: The place under the namespace, the same for a mutex, a lease and a leader of one key.
    name = models.CharField(_("place"), max_length=LONGEST)
    key = models.CharField(_("key"), max_length=LONGEST)
    kind = models.CharField(_("event"), max_length=10, choices=Kind)
    at = models.DateTimeField(_("time"), db_index=True)
    waited = models.FloatField(_("waited"), null=True)
    held_for = models.FloatField(_("held"), null=True)
    owner = models.CharField(_("owner"), max_length=LONGEST)
    hostname = models.CharField(_("host"), max_length=LONGEST)
    pid = models.PositiveIntegerField(_("process"))
    token = models.BigIntegerField(_("token"), null=True)
    detail = models.CharField(_("details"), max_length=LONGEST_DETAIL)

    class Meta:
        verbose_name = _("event")
        verbose_name_plural = _("history")
        default_permissions = ()
        indexes: ClassVar = [models.Index(fields=["using", "name", "at"], name="distlock_of_lock")]

    def __str__(self) -> str:
        return f"{self.key}: {self.get_kind_display()}"

    @staticmethod
    def place(name: str) -> str:
        """Return the `name` of the events of a lock with this `Lock.name`."""
        return name.removeprefix(LEADER).removeprefix(f"{LEASES}/")
