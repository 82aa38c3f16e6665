"""Serves the admin pages: holders and waiters of all locks, and an operator's three actions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from unicodedata import normalize
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.admin.utils import quote, unquote
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.core.paginator import Paginator
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.cache import get_conditional_response, set_response_etag
from django.utils.text import capfirst
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from distlock.conf import configuration
from distlock.engine.hosts import settings_of
from distlock.exceptions import LockKeyError, LockUnavailable
from distlock.history import is_kept
from distlock.inspection import state, wait_graph
from distlock.inspection.state import ORDERS, Snapshot
from distlock.inspection.tree import look, snapshot
from distlock.inspection.wait_graph import Cycle
from distlock.locks import actions
from distlock.locks.actions import Action, NewLimit, Target
from distlock.models import Lock, LockEvent
from distlock.templatetags.distlock import who
from distlock.text import MAX_SHOWN, printable

from . import history
from .drawing import draw
from .last_hour import last_hour

#: The seconds that a page may take for its reads, and the seconds of them for the locks.
BUDGET: Final = 3.0
LOCKS_BUDGET: Final = 1.8
#: The seconds of a wait that the page tells first.
LATE: Final = 5
#: A deadlock that is older than ``DEADLOCK_AFTER`` by so many seconds stays.
DETECTED: Final = 5.0
#: The locks on a page.
PAGE_SIZE: Final = 100
#: The longest text to search for.
TEXT: Final = 200
#: The most holders, and the most waiters, on the page of a lock; and without "show all".
DEPTH: Final = 200
SHORT: Final = 20
#: The longest reason for an action.
REASON: Final = 300
ACTS: Final = ("revoke", "break", "limit")


@dataclass(kw_only=True)
class Reading:
    """The data of one request, as far as it could be read in time."""

    using: str
    started: float = field(default_factory=time.monotonic)
    #: The reason why the server could not be read, and whether it is the settings.
    trouble: str = ""
    misconfigured: bool = False
    #: The deadlocks, None if there was no time to look for them, and whether all keys were checked.
    cycles: list[Cycle] | None = None
    whole: bool = True
    #: The setting ``DEADLOCK_AFTER``.
    after: float | None = None

    @property
    def interval(self) -> int:
        """The milliseconds after which to read again."""
        # The time went on a timeout, not on a large tree.
        took = 0 if self.trouble else time.monotonic() - self.started
        return int(max(2.0, 4 * took) * 1000)  # so that a large tree is not read without a break

    def attempt(self, read: Callable[[], Any]) -> Any:
        """Return the result of `read`, or None if it fails: then `trouble` has the reason."""
        try:
            return read()
        except LockUnavailable as error:
            self.trouble = self.trouble or printable(str(error))
        except ImproperlyConfigured as error:
            self.trouble, self.misconfigured = printable(str(error)), True
        return None

    def expects_the_end(self, cycle: Cycle) -> bool:
        """Return whether its members will yet detect a deadlock, as far as settings tell."""
        waits = cycle.youngest.seconds or 0
        return self.after is not None and cycle.certain and waits < self.after + DETECTED

    def look_around(self, seen: Snapshot | None = None) -> Snapshot | None:
        """Look for deadlocks in the time left; return all locks, unless the caller has `seen` them.

        None if they could not be read in time.
        """
        if self.trouble:
            return None
        left = self.started + BUDGET - time.monotonic()
        each = max(left - 0.2, 0.3) / 3
        with suppress(LockUnavailable):  # the locks were read: only the time was too short
            seen = seen or snapshot(self.using, depth=None, budget=each)
            # Nodes read one after the other may show a cycle that never was: look again.
            found = wait_graph.cycles(seen.locks) and wait_graph.deadlocks(self.using, budget=each)
            self.cycles, self.whole = found, not seen.cut
            self.after = configuration(self.using).deadlock_after
            return seen
        return None


class Query:
    """The parameters in the page's address. Invalid ones count as absent."""

    def __init__(self, said: Mapping[str, str]) -> None:
        order = said.get("o", "")
        self.q = said.get("q", "")[:TEXT].strip()
        self.contended = bool(said.get("contended"))
        self.order = order if order in ORDERS else "waiting"
        self.hidden = [
            (name, said[name]) for name in ("using", "contended", "o", "span") if name in said
        ]

    def has(self, text: str) -> bool:
        return normalize("NFC", self.q).casefold() in text.casefold()

    def names(self, contender: state.Contender) -> bool:
        """Return whether a participant is searched for: host, process, thread, task or request."""
        one = contender.participant
        named = "" if one.session_id else one.owner_id  # as leases are
        said = (contender.process, one.worker, one.label, named)
        return bool(self.q) and self.has(" ".join(said))

    def chosen(self, locks: Iterable[state.Lock]) -> list[state.Lock]:
        """Return the locks to show, in their order."""
        found = [lock for lock in locks if lock.waiting or lock.tasks or not self.contended]
        return sorted(sorted(found, key=ORDERS["key"]), key=ORDERS[self.order])


class ReasonForm(forms.Form):
    """Asks for what is written into the admin's log beside an action."""

    reason = forms.CharField(label=_("Reason"), required=False, max_length=REASON)


class LimitForm(ReasonForm):
    """Asks for the limit of a semaphore."""

    limit = forms.IntegerField(label=_("New limit"), min_value=1)


@admin.register(Lock)
class LockAdmin(history.ReadOnly, admin.ModelAdmin):  # type: ignore[type-arg]  # not at run time
    """The locks of all aliases. Viewing and each of the actions need a permission."""

    def get_urls(self) -> list[URLPattern]:
        name = "distlock_lock"
        view = self.admin_site.admin_view
        act = view(self.action_view)
        return [
            path("", view(self.list_view), name=f"{name}_changelist"),
            path("ask/", view(self.ask_view), name=f"{name}_ask"),
            path("<path:object_id>/change/", view(self.detail_view), name=f"{name}_change"),
            path("<path:object_id>/revoke/", act, {"action": "revoke"}, name=f"{name}_revoke"),
            path("<path:object_id>/break/", act, {"action": "break"}, name=f"{name}_break"),
            path("<path:object_id>/limit/", view(self.limit_view), name=f"{name}_limit"),
        ]

    def list_view(self, request: HttpRequest) -> HttpResponseBase:
        """Show the locks with holders or waiters."""
        _require(request, "view_lock")
        reading = _reading(request.GET.get("using", "default"))
        query = Query(request.GET)
        read = partial(snapshot, reading.using, select=query.has, depth=None, budget=LOCKS_BUDGET)
        seen: Snapshot | None = reading.attempt(read)
        everything = reading.look_around(seen if seen and not (query.q or seen.cut) else None)
        locks = {lock.path: lock for lock in seen.locks} if seen else {}
        for lock in everything.locks if seen and everything and query.q else ():
            if any(map(query.names, lock.contenders)):
                locks.setdefault(lock.path, lock)
        found, aliases = query.chosen(locks.values()), _aliases()
        page = Paginator(found, PAGE_SIZE).get_page(request.GET.get("p"))
        theirs = _of_process(found, query.q)
        late = sorted(filter(_is_late, everything.locks if everything else ()), key=ORDERS["wait"])
        context = {
            "title": capfirst(self.opts.verbose_name_plural),
            "seen": seen,
            "found": found,
            "query": query,
            "page": page,
            "rows": [
                (lock, self._page_of(reading.using, lock), _shown(lock, query)) for lock in page
            ],
            "stuck": {link.lock.path for cycle in reading.cycles or () for link in cycle.links},
            "process": {
                "holds": sum(one.holds for _, one in theirs),
                "waits": sum(not one.holds for _, one in theirs),
                "ask": self._address_in(reading.using, "ask", process=query.q),
            }
            if theirs
            else None,
            "may_revoke": _may(request, "revoke_lock"),
            "late": [(lock, self._page_of(reading.using, lock)) for lock in late]
            if everything and not everything.cut
            else None,
            "least": LATE,
            "last_hour": reading.attempt(
                partial(last_hour, reading.using, request.GET.get("span", ""))
            ),
            "longest_text": TEXT,
            "tabs": [_tab(one, reading, everything) for one in aliases] if len(aliases) > 1 else [],
        }
        return self._answer(request, "list", reading, context)

    def detail_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Show the holders and waiters of a lock, with the data of their nodes."""
        _require(request, "view_lock")
        lock = Lock(id=unquote(object_id))
        reading = _reading(lock.using)
        seen = _look(reading, lock)
        reading.look_around()
        found = _locks(seen, lock)
        owners = {one.owner for shown in found for one in shown.holders}
        reading.cycles = reading.cycles and [
            cycle
            for cycle in reading.cycles
            if any(
                link.lock.name == lock.name or link.waiter.owner in owners for link in cycle.links
            )
        ]
        context = {
            "title": lock,
            "lock": lock,
            "seen": seen,
            "found": found,
            "lines": [_line(one, DEPTH if "all" in request.GET else SHORT) for one in found],
            **{f"may_{act}": _may(request, f"{act}_lock") for act in ACTS},
            **{f"{act}_address": self._address(act, lock) for act in ACTS},
            "entries": LogEntry.objects.filter(
                content_type=ContentType.objects.get_for_model(Lock), object_id=lock.pk
            ).select_related("user")[:10],
            "history": history.address(lock.using, lock.name) if is_kept() else "",
            "lost": ""
            if reading.misconfigured
            else LockEvent.last_loss(lock.using, LockEvent.place(lock.name)),
        }
        return self._answer(request, "detail", reading, context)

    def _answer(
        self, request: HttpRequest, part: str, reading: Reading, context: dict[str, Any]
    ) -> HttpResponseBase:
        """Answer with a whole page, or with its changing parts alone, or that nothing changed."""
        fragment = "_fragment" in request.GET
        found, seen = context.get("found", ()), context.get("seen")
        now = seen.taken_at if isinstance(seen, Snapshot) else timezone.now()
        context = {
            **({} if fragment else self.admin_site.each_context(request)),
            **context,
            "opts": self.opts,
            "part": part,
            "fragment": fragment,
            "now": now,
            "reading": reading,
            "drawings": [one for cycle in reading.cycles or () if (one := draw(cycle))],
            "holding": sum(lock.holding for lock in found),
            "waiting": sum(lock.waiting for lock in found),
            "cycles": [
                (
                    one,
                    [(link, self._page_of(reading.using, link.lock)) for link in one.links],
                    reading.expects_the_end(one),
                )
                for one in reading.cycles or ()
            ],
            "list_address": self._address_in(reading.using),
        }
        request.current_app = self.admin_site.name
        folder = "admin/distlock/lock"
        if not fragment:
            return TemplateResponse(request, f"{folder}/{part}.html", context)
        answer = HttpResponse(render_to_string(f"{folder}/fragment.html", context, request))
        set_response_etag(answer)
        same = get_conditional_response(request, etag=answer["ETag"], response=answer)
        answer = same or answer
        answer["Distlock-Interval"] = reading.interval
        answer["Distlock-Now"] = int(now.timestamp() * 1000)
        return answer

    @transaction.non_atomic_requests  # or an error would undo the record of the act
    def action_view(self, request: HttpRequest, object_id: str, action: Action) -> HttpResponseBase:
        """Ask a participant to release, or delete its node, after a confirmation."""
        _require(request, "view_lock", f"{action}_lock")
        lock = Lock(id=unquote(object_id))
        reading = _reading(lock.using)
        asks, form = action == "revoke", ReasonForm(request.POST or None)
        context: dict[str, Any] = {}
        if found := _look(reading, lock):
            named = request.GET.get("node", ""), request.GET.get("token", "")
            shown = _find(_locks(found, lock), *named)
            if not shown:
                messages.warning(request, _("That participant has left already."))
                return HttpResponseRedirect(self._address("change", lock))
            seen, contender = shown
            if not (actions.can_be_asked if asks else actions.can_be_broken)(contender):
                raise Http404
            target = Target.of(lock.using, seen, contender)
            if request.method == "POST":
                self._act(request, reading, lock, action, target)
                if not reading.trouble:  # or else the outcome is unknown
                    return HttpResponseRedirect(self._address("change", lock))
            context = {
                "contender": contender,
                "consequence": actions.consequence(seen, contender),
                "acted": request.method == "POST",
            }
        context |= {
            "title": _("Ask to release") if asks else _("Break the lock"),
            "lock": lock,
            "asks": asks,
            "form": form,
            "lock_address": self._address("change", lock),
        }
        return self._answer(request, "confirm", reading, context)

    @transaction.non_atomic_requests
    def ask_view(self, request: HttpRequest) -> HttpResponseBase:
        """Ask a process to release all that it holds, after a confirmation."""
        _require(request, "view_lock", "revoke_lock")
        reading = _reading(request.GET.get("using", "default"))
        process = request.GET.get("process", "")
        read = partial(snapshot, reading.using, depth=None, budget=LOCKS_BUDGET)
        seen: Snapshot | None = reading.attempt(read)
        held = [
            (lock, one)
            for lock, one in _of_process(seen.locks if seen else (), process)
            if one.holds and actions.can_be_asked(one)
        ]
        address = self._address_in(reading.using, q=process)
        if request.method == "POST" and seen:
            for lock, one in held:
                target = Target.of(reading.using, lock, one)
                self._act(request, reading, Lock.at(reading.using, lock.name), "revoke", target)
            if not reading.trouble:
                return HttpResponseRedirect(address)
        context = {
            "title": _("Ask to release"),
            "lock": process,
            "held": held,
            "form": ReasonForm(),
            "acted": request.method == "POST",
            "lock_address": address,
        }
        return self._answer(request, "ask", reading, context)

    @transaction.non_atomic_requests
    def limit_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Set the limit of a semaphore, or unset it, after a confirmation."""
        _require(request, "view_lock", "limit_lock")
        lock = Lock(id=unquote(object_id))
        if lock.name.startswith("@") or "/" in lock.name:
            raise Http404  # no semaphore is there
        reading = _reading(lock.using)
        found = _locks(_look(reading, lock), lock)
        unset = "unset" in request.POST
        form = LimitForm(request.POST if request.method == "POST" and not unset else None)
        acts = not reading.trouble and (unset or form.is_valid())
        if acts:
            limit = None if unset else form.cleaned_data["limit"]
            target = NewLimit(using=lock.using, key=lock.key, name=lock.name, limit=limit)
            self._act(request, reading, lock, "limit", target)
            if not reading.trouble:
                return HttpResponseRedirect(self._address("change", lock))
        context = {
            "title": _("Change the limit"),
            "lock": lock,
            "seen": next((one for one in found if one.kind == "semaphore"), None),
            "form": form,
            "acted": acts,
            "lock_address": self._address("change", lock),
        }
        return self._answer(request, "limit", reading, context)

    def _act(
        self,
        request: HttpRequest,
        reading: Reading,
        lock: Lock,
        action: Action,
        target: Target | NewLimit,
    ) -> None:
        reason = request.POST.get("reason", "").strip()[:REASON]
        did = _text(action, target)
        if reason:
            did = gettext("%(act)s Reason: %(reason)s") % {"act": did, "reason": reason}
        user_id: Any = request.user.pk
        entry = LogEntry.objects.create(
            user_id=user_id,
            content_type=ContentType.objects.get_for_model(Lock),
            object_id=lock.pk,
            object_repr=str(lock)[:200],
            action_flag=DELETION if action == "break" else CHANGE,
            change_message=gettext("%(act)s Not confirmed: outcome unknown.") % {"act": did},
        )
        operator = f"The user {request.user.get_username()!a}"
        act = partial(actions.carry_out, action, target, operator=operator, reason=reason)
        done = reading.attempt(act)
        if done:
            entry.change_message = did
            entry.save()
            messages.success(request, did)
        elif not reading.trouble:
            entry.delete()  # the admin's log lists changes
            gone = _("Already gone from %(lock)s, so nothing was done: %(who)s.")
            messages.warning(request, gone % {"who": target.who, "lock": lock})

    def _address(self, view: str, lock: Lock) -> str:
        """Return the address of one of a lock's pages; empty for a long name, or no text."""
        if not lock.name.isprintable() or len(lock.name) > MAX_SHOWN:
            return ""
        return reverse(
            f"admin:distlock_lock_{view}", args=[quote(lock.pk)], current_app=self.admin_site.name
        )

    def _address_in(self, using: str, view: str = "changelist", **query: str) -> str:
        """Return the address of a page of an alias."""
        if using != "default":
            query = {"using": using, **query}
        address = reverse(f"admin:distlock_lock_{view}", current_app=self.admin_site.name)
        return f"{address}?{urlencode(query)}"

    def _page_of(self, using: str, lock: state.Lock) -> str:
        return self._address("change", Lock.at(using, lock.name))


def _look(reading: Reading, lock: Lock) -> Snapshot | None:
    try:
        read = partial(look, lock.name, lock.using, depth=DEPTH, budget=LOCKS_BUDGET)
        seen: Snapshot | None = reading.attempt(read)
    except LockKeyError as error:
        raise Http404(str(error)) from error
    return seen


def _locks(seen: Snapshot | None, lock: Lock) -> list[state.Lock]:
    """Return all locks of one name: mostly one, or a mutex and a semaphore of one key."""
    return [one for one in seen.locks if one.name == lock.name] if seen else []


def _is_late(lock: state.Lock) -> bool:
    return lock.longest_wait > LATE and lock.kind != "leader"  # whose candidates just stand by


def _of_process(
    locks: Iterable[state.Lock], process: str
) -> list[tuple[state.Lock, state.Contender]]:
    """Return all that a process holds and waits for, ``host:pid``."""
    return [
        (lock, one)
        for lock in locks
        for one in lock.contenders
        if process and one.process == process
    ]


def _shown(lock: state.Lock, query: Query) -> state.Contender | None:
    """Return the participant for a row of the list: the one searched for, or the first holder."""
    return next(filter(query.names, lock.contenders), next(iter(lock.holders), None))


def _tab(alias: str, reading: Reading, seen: Snapshot | None) -> dict[str, Any]:
    """Return what the tab of an alias shows, of others as far as there is time to read them."""
    if alias != reading.using:
        reading = Reading(using=alias, started=reading.started)
        seen = reading.attempt(reading.look_around)
    return {
        "alias": alias,
        "engine": settings_of(getattr(settings, "DISTLOCK", {}).get(alias, {}).get("HOSTS")).NAME,
        "waiting": sum(lock.waiting for lock in seen.locks) if seen else 0,
        "deadlocks": len(reading.cycles or ()),
        "unread": reading.cycles is None,
        "address": "?" if alias == "default" else f"?{urlencode({'using': alias})}",
    }


def _line(lock: state.Lock, most: int) -> dict[str, Any]:
    """Return a lock with its holders, its waiters by process, and the numbers of those beyond."""
    waiters: dict[str, list[dict[str, Any]]] = {}
    for at, one in enumerate(lock.waiters, 1):
        waiters.setdefault(one.process or who(one), []).append(_row(lock, one, at))
    shown = list(waiters.items())[:most]
    return {
        "lock": lock,
        "holders": [_row(lock, one, 0) for one in lock.holders[:most]],
        "processes": [
            (name, len(rows), [row for row in rows if row["number"] <= most])
            for name, rows in shown
        ],
        "more_holders": lock.holding - len(lock.holders[:most]),
        "more_waiters": lock.waiting - len(lock.waiters[:most]),
    }


def _row(lock: state.Lock, contender: state.Contender, number: int) -> dict[str, Any]:
    """Return a participant with its place in the queue, its node and what can be done."""
    node = contender.participant.path.removeprefix(lock.path).removeprefix("/")
    fits = len(node) <= MAX_SHOWN
    return {
        "contender": contender,
        "node": printable(node),
        "number": number,
        "askable": fits and actions.can_be_asked(contender),
        "breakable": fits and actions.can_be_broken(contender),
        "target": urlencode({"node": node, "token": contender.participant.token}) if fits else "",
    }


def _find(
    locks: list[state.Lock], node: str, token: str
) -> tuple[state.Lock, state.Contender] | None:
    """Return the contender of a node, if the node still has this token."""
    for lock in locks:
        for contender in lock.contenders:
            one = contender.participant
            if one.path == f"{lock.path}/{node}".rstrip("/") and str(one.token) == token:
                return lock, contender
    return None


def _text(action: Action, target: Target | NewLimit) -> str:
    if isinstance(target, NewLimit):
        if target.limit is None:
            text = gettext("Unset the limit of %(lock)s, so that of the code counts again.")
        else:
            text = gettext("Set the limit of %(lock)s to %(limit)d.")
        return text % {"lock": printable(target.key), "limit": target.limit}
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


def _require(request: HttpRequest, *permissions: str) -> None:
    if not all(_may(request, one) for one in permissions):
        raise PermissionDenied


def _reading(using: str) -> Reading:
    if using not in _aliases():
        raise Http404(f"DISTLOCK has no alias {using!a}.")
    return Reading(using=using)


def _aliases() -> list[str]:
    return list(getattr(settings, "DISTLOCK", {"default": {}}))
