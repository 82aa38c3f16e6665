"""Defines the models: a lock, which has no table; an event and a count of the history have one."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import ClassVar, Final
from urllib.parse import quote, unquote

from django.conf import settings
from django.db import DatabaseError, models, transaction
from django.utils.timezone import localtime, now
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .conf import configuration
from .inspection.state import LEADER, LEASES, key_of
from .templatetags.distlock import moment
from .text import printable

_RECENT: Final = timedelta(hours=1)


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
        BROKEN = "broken", _("broken")

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

    @property
    def moment(self) -> str:
        """Its time in the current time zone, with that."""
        return moment(localtime(self.at) if settings.USE_TZ else self.at)

    @classmethod
    def last_loss(cls, using: str, name: str) -> str:
        """Return a sentence on who lost a lock last, within an hour; empty if nobody is known.

        :param name: the `name` of its events
        """
        if not configuration(using).history:
            return ""
        lost = (cls.Kind.LOST, cls.Kind.BROKEN)
        recent = cls.objects.filter(using=using, name=name, kind__in=lost, at__gte=now() - _RECENT)
        # The table may not be there yet.
        with suppress(DatabaseError), transaction.atomic(using=recent.db):
            for one in recent.order_by("-at")[:1]:
                text = gettext("%(host)s:%(pid)d (%(owner)s) lost it at %(time)s.")
                facts = {"host": one.hostname, "pid": one.pid, "owner": one.owner}
                facts["time"] = one.moment
                return f"{text % facts} {one.detail}"
        return ""

    @staticmethod
    def place(name: str) -> str:
        """Return the `name` of the events of a lock with this `Lock.name`."""
        return name.removeprefix(LEADER).removeprefix(f"{LEASES}/")


class LockMinute(models.Model):
    """How often something happened to the locks of a template in one minute, in all processes."""

    LONGEST: Final = LockEvent.LONGEST
    #: The fields that name a row, in an order that serves a span of time of one alias.
    UNIQUE: Final = ("minute", "using", "template", "kind", "bucket")

    #: Since the epoch.
    minute = models.IntegerField()
    using = models.CharField(max_length=LONGEST)
    #: Empty for all locks without one.
    template = models.CharField(max_length=LONGEST)
    #: ``"wait"``, ``"hold"``, or a `LockEvent.Kind` but ``"held"``.
    kind = models.CharField(max_length=10)
    #: The index among `signals.BUCKETS`; 0 for what takes no time.
    bucket = models.PositiveSmallIntegerField()
    count = models.PositiveBigIntegerField(default=0)

    class Meta:
        default_permissions = ()
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["minute", "using", "template", "kind", "bucket"], name="distlock_minute"
            )
        ]

    def __str__(self) -> str:
        return f"{self.template}: {self.count} {self.kind}"
