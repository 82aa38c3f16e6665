"""Lists the history of locks, with Django's own filters and search."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import BigIntegerField, Case, Count, F, Min, Q, QuerySet, Value, When, Window
from django.db.models.functions import RowNumber, TruncHour
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from distlock.history import is_kept
from distlock.models import LockEvent
from distlock.owner.hold import REASONS
from distlock.templatetags.distlock import durations


class ReadOnly:
    """For whoever may view locks, and without forms."""

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return request.user.has_perm("distlock.view_lock")

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    has_add_permission = has_delete_permission = has_change_permission


def address(using: str, name: str) -> str:
    """Return the parameters that name a lock in the address of the list."""
    return urlencode({"using__exact": using, "name__exact": LockEvent.place(name)})


class Lasted(admin.SimpleListFilter):
    """Chooses events by their wait or hold."""

    title = _("duration")
    parameter_name = "lasted"

    def lookups(self, *args: object) -> list[tuple[str, str]]:
        return [
            (str(least), f"≥ {durations()[-1] % {'seconds': least}}") for least in (1, 10, 60, 600)
        ]

    def queryset(self, request: HttpRequest, events: QuerySet[LockEvent]) -> QuerySet[LockEvent]:
        least = dict.fromkeys(("waited__gte", "held_for__gte"), self.value() or 0)
        return events.filter(Q(*least.items(), _connector=Q.OR)) if self.value() else events


class Outages(admin.SimpleListFilter):
    """Shows what failed and was lost on an alias within an hour, for want of a server, as one row.

    Other filters come first: they decide what is counted.
    """

    #: Fewer are no outage: a process may have stood still.
    LEAST = 5

    title = _("outages")
    parameter_name = "each"

    def lookups(self, *args: object) -> list[tuple[str, Any]]:
        return [("1", _("each event"))]

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        together, each = super().choices(changelist)
        yield from ({**together, "display": _("in one row")}, each)

    def queryset(self, request: HttpRequest, events: QuerySet[LockEvent]) -> QuerySet[LockEvent]:
        if self.value():
            return events
        away = Q(kind=LockEvent.Kind.FAILED) | Q(
            kind=LockEvent.Kind.LOST, detail__contains=REASONS["session"]
        )
        cause = Case(When(away, then=Value(0)), default=F("id"), output_field=BigIntegerField())
        row = partial(Window, partition_by=[F("using"), TruncHour("at"), cause])
        return events.annotate(
            count=row(Count("id")),
            first=row(Min("at")),
            latest=row(RowNumber(), order_by=["-at", "-id"]),
            # One column, or the dates above the list would be as many as the rows.
            outage=Case(When(count__gte=self.LEAST, then=Value(1)), default=Value(0)),
            shown=Case(When(outage=1, then=F("latest")), default=Value(1)),
        ).filter(shown=1)


@admin.register(LockEvent)
class LockEventAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]  # not at run time
    """The events of all locks, to be read only. Viewing needs the permission to view locks."""

    change_list_template = "admin/distlock/lockevent/list.html"
    list_display = ("at",)  # the template shows the rest
    list_filter = ("kind", Lasted, Outages, "hostname", "using")
    search_fields = ("key", "owner", "hostname", "pid")
    search_help_text = _("Part of a key, host, process, thread, task or request")
    date_hierarchy = "at"
    ordering = ("-at", "-id")
    show_full_result_count = False

    def has_module_permission(self, request: HttpRequest) -> bool:
        return is_kept() and self.has_view_permission(request)
