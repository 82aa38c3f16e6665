"""Serves the admin pages: holders and waiters of all locks, and an operator's two actions.

They read `inspection` within `BUDGET` seconds. When the lock server does not answer, the page
reports it.
No table and no form is behind them: the model is `models.Lock`, the views are here.
`static/distlock/page.js` refreshes the changing parts every other second. Without it, the pages
work by links and forms.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.admin.utils import quote, unquote
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db import transaction
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.text import capfirst
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from distlock.exceptions import LockKeyError
from distlock.history.receivers import is_kept
from distlock.inspection.tree import look
from distlock.locks.actions import Target, can_be_asked, can_be_broken, consequence
from distlock.logs.audit import carry_out
from distlock.models import Lock
from distlock.text import MAX_SHOWN, printable

from . import history, lock_list, lock_page
from .drawing import draw
from .lock_list import TEXT, Query
from .lock_page import find, line
from .reading import LOCKS_BUDGET, Reading

if TYPE_CHECKING:
    from django.http import HttpRequest

    from distlock.inspection import state
    from distlock.inspection.state import Snapshot
    from distlock.locks.actions import Action

    from .drawing import Drawing

    LockAdminBase: TypeAlias = admin.ModelAdmin[Lock]
else:
    LockAdminBase = admin.ModelAdmin

#: The entries of the admin's log on the page of a lock.
LOG_ENTRIES: Final = 10


@admin.register(Lock)
class LockAdmin(history.ReadOnly, LockAdminBase):
    """The locks of all aliases. Viewing, asking and breaking need one permission each."""

    def get_urls(self) -> list[URLPattern]:
        name = "distlock_lock"
        view = self.admin_site.admin_view
        return [
            path("", view(self.changelist_view), name=f"{name}_changelist"),
            path("<path:object_id>/change/", view(self.detail_view), name=f"{name}_change"),
            path("<path:object_id>/revoke/", view(self.revoke_view), name=f"{name}_revoke"),
            path("<path:object_id>/break/", view(self.break_view), name=f"{name}_break"),
        ]

    # --- pages ----------------------------------------------------------------------------------

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the locks with holders or waiters."""
        _require(request, "view_lock")
        reading = _reading(request.GET.get("using", "default"))
        query = Query(request.GET)
        seen = reading.attempt(partial(query.read, reading.using, LOCKS_BUDGET))
        reading.look_around(seen if seen and not (query.q or seen.cut) else None)
        found = query.chosen(seen.locks) if seen else []
        page = Paginator(found, lock_list.PAGE_SIZE).get_page(request.GET.get("p"))
        context = {
            **(extra_context or {}),
            "title": capfirst(self.opts.verbose_name_plural),
            "seen": seen,
            "found": found,
            "query": query,
            "columns": query.columns(),
            "page": page,
            "rows": [(lock, self._page_of(reading.using, lock)) for lock in page],
            "longest": max((lock.waiting for lock in found), default=0),
            "drawings": _drawings(reading),
            "cut_text": len(request.GET.get("q", "")) > TEXT,
            "longest_text": TEXT,
            "aliases": [(one, _query(one), one == reading.using) for one in _aliases()],
        }
        return self._answer(request, "list", reading, context)

    def detail_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the holders and waiters of a lock, with the data of their nodes."""
        _require(request, "view_lock")
        lock = Lock(id=unquote(object_id))
        reading = _reading(lock.using)
        seen = _look(reading, lock)
        reading.look_around()
        found = _locks(seen, lock)
        context = {
            "title": lock,
            "lock": lock,
            "seen": seen,
            "found": found,
            "lines": [line(one) for one in found],
            "may_revoke": _may(request, "revoke_lock"),
            "may_break": _may(request, "break_lock"),
            "revoke_address": self._address("revoke", lock),
            "break_address": self._address("break", lock),
            "entries": self._log_entries(lock),
            "history": history.address(lock) if is_kept() else "",
            "drawings": _drawings(reading, lock.name),
        }
        return self._answer(request, "detail", reading, context)

    def _answer(
        self, request: HttpRequest, part: str, reading: Reading, context: dict[str, Any]
    ) -> HttpResponse:
        """Answer with a whole page, or with its changing parts alone."""
        fragment = "_fragment" in request.GET
        context = {
            **({} if fragment else self.admin_site.each_context(request)),
            **context,
            "opts": self.opts,
            "part": part,
            "reading": reading,
            "holding": sum(lock.holding for lock in context["found"]),
            "waiting": sum(lock.waiting for lock in context["found"]),
            "cycles": [
                (one, [(link, self._page_of(reading.using, link.lock)) for link in one.links])
                for one in reading.cycles or ()
            ],
            "list_address": self._list_address(reading.using),
        }
        request.current_app = self.admin_site.name
        template = "fragment" if fragment else part
        headers = {"Distlock-Interval": str(reading.interval)}
        return TemplateResponse(
            request, f"admin/distlock/lock/{template}.html", context, headers=headers
        )

    # --- actions --------------------------------------------------------------------------------
    #
    # Under ATOMIC_REQUESTS an error would undo the record of the act.

    @transaction.non_atomic_requests
    def revoke_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask a participant to release, after a confirmation."""
        return self._action(request, object_id, "revoke")

    @transaction.non_atomic_requests
    def break_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Delete a participant's node, after a confirmation."""
        return self._action(request, object_id, "break")

    def _action(self, request: HttpRequest, object_id: str, action: Action) -> HttpResponse:
        _require(request, "view_lock")
        _require(request, f"{action}_lock")
        lock = Lock(id=unquote(object_id))
        reading = _reading(lock.using)
        asks = action == "revoke"
        context: dict[str, Any] = {}
        if found := _look(reading, lock):
            named = request.GET.get("node", ""), request.GET.get("token", "")
            shown = find(_locks(found, lock), *named)
            if not shown:
                messages.warning(request, _("That participant has left already."))
                return HttpResponseRedirect(self._address("change", lock))
            seen, contender = shown
            if not (can_be_asked if asks else can_be_broken)(contender):
                raise Http404
            target = Target.of(lock.using, seen, contender)
            if request.method == "POST":
                self._act(request, reading, lock, action, target)
                if not reading.trouble:  # or else the outcome is unknown
                    return HttpResponseRedirect(self._address("change", lock))
            context = {"contender": contender, "consequence": consequence(seen, contender)}
        request.current_app = self.admin_site.name
        return TemplateResponse(
            request,
            "admin/distlock/lock/confirm.html",
            {
                **self.admin_site.each_context(request),
                **context,
                "opts": self.opts,
                "title": _("Ask to release") if asks else _("Break the lock"),
                "asks": asks,
                "lock": lock,
                "reading": reading,
                "lock_address": self._address("change", lock),
                "list_address": self._list_address(lock.using),
            },
        )

    def _act(
        self, request: HttpRequest, reading: Reading, lock: Lock, action: Action, target: Target
    ) -> None:
        did = _text(action, target)
        user_id: Any = request.user.pk
        entry = LogEntry.objects.create(
            user_id=user_id,
            content_type=ContentType.objects.get_for_model(Lock),
            object_id=lock.pk,
            object_repr=str(lock)[:200],
            action_flag=CHANGE if action == "revoke" else DELETION,
            change_message=gettext("%(act)s Not confirmed: outcome unknown.") % {"act": did},
        )
        operator = f"The user {request.user.get_username()!a}"
        done = reading.attempt(partial(carry_out, action, target, operator=operator))
        if done:
            entry.change_message = did
            entry.save()
            messages.success(request, did)
        elif not reading.trouble:
            entry.delete()  # the admin's log lists changes
            gone = _("Already gone from %(lock)s, so nothing was done: %(who)s.")
            messages.warning(request, gone % {"who": target.who, "lock": lock})

    # --- the admin's log ------------------------------------------------------------------------

    def _log_entries(self, lock: Lock) -> list[LogEntry]:
        """Return the operators' acts on a lock, the last first."""
        entries = LogEntry.objects.filter(
            content_type=ContentType.objects.get_for_model(Lock), object_id=lock.pk
        )
        return list(entries.select_related("user")[:LOG_ENTRIES])

    # --- addresses ------------------------------------------------------------------------------

    def _address(self, view: str, lock: Lock) -> str:
        """Return the address of one of a lock's pages; empty for a long name, or no text."""
        if not lock.name.isprintable() or len(lock.name) > MAX_SHOWN:
            return ""
        return reverse(
            f"admin:distlock_lock_{view}", args=[quote(lock.pk)], current_app=self.admin_site.name
        )

    def _page_of(self, using: str, lock: state.Lock) -> str:
        return self._address("change", Lock.at(using, lock.name))

    def _list_address(self, using: str) -> str:
        address = reverse("admin:distlock_lock_changelist", current_app=self.admin_site.name)
        return address + _query(using)


def _look(reading: Reading, lock: Lock) -> Snapshot | None:
    """Return the locks of a name, None if they could not be read.

    :raises Http404: no lock can have this name
    """
    try:
        read = partial(look, lock.name, lock.using, depth=lock_page.DEPTH, budget=LOCKS_BUDGET)
        seen: Snapshot | None = reading.attempt(read)
    except LockKeyError as error:
        raise Http404(str(error)) from error
    return seen


def _locks(seen: Snapshot | None, lock: Lock) -> list[state.Lock]:
    """Return all locks of one name: mostly one, or a mutex and a semaphore of one key."""
    return [one for one in seen.locks if one.name == lock.name] if seen else []


def _drawings(reading: Reading, lock: str | None = None) -> list[Drawing]:
    """Return the drawings of the deadlocks, or only of those that include a lock."""
    return [
        drawing
        for cycle in reading.cycles or ()
        if lock is None or lock in {link.lock.name for link in cycle.links}
        if (drawing := draw(cycle))
    ]


def _text(action: Action, target: Target) -> str:
    """Return an act in words, as done."""
    if action == "revoke":
        text = gettext("Asked %(who)s to release %(lock)s (%(node)s, token %(token)d).")
    elif target.holds:
        text = gettext("Broke the lock of %(who)s on %(lock)s (%(node)s, token %(token)d).")
    else:
        text = gettext("Removed %(who)s from the queue of %(lock)s (%(node)s, token %(token)d).")
    return text % {
        "who": target.who,
        "lock": printable(target.key),
        "node": printable(target.participant.path),
        "token": target.participant.token,
    }


def _may(request: HttpRequest, permission: str) -> bool:
    return request.user.has_perm(f"distlock.{permission}")


def _require(request: HttpRequest, permission: str) -> None:
    if not _may(request, permission):
        raise PermissionDenied


def _reading(using: str) -> Reading:
    """Begin to read an alias.

    :raises Http404: no alias has this name
    """
    if using not in _aliases():
        raise Http404(f"DISTLOCK has no alias {using!a}.")
    return Reading(using=using)


def _aliases() -> list[str]:
    return list(getattr(settings, "DISTLOCK", {"default": {}}))


def _query(using: str) -> str:
    """Return the parameters of an alias's list."""
    return "?" if using == "default" else f"?{urlencode({'using': using})}"
