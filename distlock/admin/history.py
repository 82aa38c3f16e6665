"""Lists the history of locks, with Django's own filters and search."""

from __future__ import annotations

from urllib.parse import urlencode

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest
from django.utils.timezone import localtime
from django.utils.translation import gettext_lazy as _

from distlock.history import is_kept
from distlock.models import Lock, LockEvent
from distlock.templatetags.distlock import moment, seconds


class ReadOnly:
    """For whoever may view locks, and without forms."""

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return request.user.has_perm("distlock.view_lock")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    has_delete_permission = has_change_permission


def address(lock: Lock) -> str:
    """Return the parameters that name a lock in the address of the list."""
    return urlencode({"using__exact": lock.using, "name__exact": LockEvent.place(lock.name)})


@admin.register(LockEvent)
class LockEventAdmin(ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]  # not at run time
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
        return moment(localtime(event.at) if settings.USE_TZ else event.at)

    @admin.display(description=_("waited"), ordering="waited")
    def wait(self, event: LockEvent) -> str | None:
        return None if event.waited is None else seconds(event.waited)

    @admin.display(description=_("held"), ordering="held_for")
    def hold(self, event: LockEvent) -> str | None:
        return None if event.held_for is None else seconds(event.held_for)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return is_kept() and self.has_view_permission(request)
