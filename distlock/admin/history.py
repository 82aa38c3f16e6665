"""Shows the history of locks: the last events on the page of a lock, and all in a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import admin
from django.db import DatabaseError, router, transaction
from django.db.models import Q
from django.utils.timezone import localtime
from django.utils.translation import gettext_lazy as _

from distlock.conf import configuration
from distlock.history.receivers import is_kept
from distlock.models import LockEvent
from distlock.templatetags.distlock import moment, seconds

if TYPE_CHECKING:
    from django.http import HttpRequest

    from distlock.models import Lock

    EventAdminBase: TypeAlias = admin.ModelAdmin[LockEvent]
else:
    EventAdminBase = admin.ModelAdmin

#: The events on the page of a lock.
SHOWN: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The last events of a lock.

    :ivar bound: the setting ``HISTORY``, 0 if it is off
    :ivar slow: the setting ``HISTORY_SLOW``, in seconds
    :ivar events: the last one first, None if the table cannot be read
    :ivar address: the parameters that name the lock in the address of the list
    """

    bound: int
    slow: float
    events: list[LockEvent] | None
    address: str


def of(lock: Lock) -> History:
    """Return the last events of a lock, with those that tell of missing events.

    :raises ImproperlyConfigured: the settings are wrong
    """
    conf, name = configuration(lock.using), LockEvent.place(lock.name)
    events: list[LockEvent] | None = []
    if conf.history:
        database = router.db_for_read(LockEvent)
        rows = LockEvent.objects.using(database).filter(using=lock.using)
        rows = rows.filter(Q(name=name) | Q(kind=LockEvent.Kind.DROPPED))
        try:
            with transaction.atomic(using=database):  # for what surrounds it: ATOMIC_REQUESTS
                events = list(rows.order_by("-at", "-id")[:SHOWN])
        except DatabaseError:
            events = None
    return History(
        bound=conf.history,
        slow=conf.history_slow,
        events=events,
        address=urlencode({"using__exact": lock.using, "name__exact": name}),
    )


@admin.register(LockEvent)
class LockEventAdmin(EventAdminBase):
    """The events of all locks, to be read only. Viewing needs the permission to view locks."""

    list_display = ("time", "kind", "key", "owner", "hostname", "pid", "wait", "hold", "detail")
    list_filter = ("kind", "hostname", "using")
    search_fields = ("key",)
    search_help_text = _("Part of a key")
    date_hierarchy = "at"
    ordering = ("-at", "-id")
    show_full_result_count = False

    @admin.display(description=_("time"), ordering="at")
    def time(self, event: LockEvent) -> str:
        """Return the time of an event with its seconds."""
        return moment(localtime(event.at) if settings.USE_TZ else event.at)

    @admin.display(description=_("waited"), ordering="waited")
    def wait(self, event: LockEvent) -> str | None:
        """Return the duration of a wait."""
        return None if event.waited is None else seconds(event.waited)

    @admin.display(description=_("held"), ordering="held_for")
    def hold(self, event: LockEvent) -> str | None:
        """Return the duration of a hold."""
        return None if event.held_for is None else seconds(event.held_for)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return is_kept() and self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: LockEvent | None = None) -> bool:
        return request.user.has_perm("distlock.view_lock")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: LockEvent | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: LockEvent | None = None) -> bool:
        return False
