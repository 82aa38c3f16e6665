"""Defines the system checks. They read settings and views, and never connect."""

from __future__ import annotations

import inspect
import os
import sys
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags
from django.core.checks import Warning as CheckWarning
from django.core.signals import got_request_exception
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.urls import URLResolver, get_resolver
from django.views import View

from .conf import rules
from .engine.hosts import settings_of
from .responses import is_refused

MIDDLEWARE = "distlock.middleware.DistlockMiddleware"


def register() -> None:
    checks.register(check_settings, "distlock")
    checks.register(check_views, "distlock", Tags.urls)
    checks.register(check_middleware, "distlock")
    checks.register(check_uwsgi, "distlock")
    checks.register(check_deployment, "distlock", Tags.security, deploy=True)
    got_request_exception.connect(_explain_error_500, dispatch_uid="distlock.middleware")


def check_settings(**_: Any) -> list[CheckMessage]:
    """E001: ``DISTLOCK`` is not a dict of aliases. E002: an alias has a wrong setting.

    E007: it uses the embedded server without ``DEBUG``. W006: its Sentinels may make a replica the
    primary that does not have a lock.
    """
    aliases = _aliases()
    if "default" not in aliases:
        return [
            Error(
                'DISTLOCK is not a dict with the alias "default".',
                hint='Write DISTLOCK = {"default": {"HOSTS": "127.0.0.1:2181"}}.',
                id="distlock.E001",
            )
        ]
    return [one for alias in aliases for one in rules.problems(alias, aliases[alias])]


def _aliases() -> dict[str, Any]:
    """Return the aliases of ``DISTLOCK``, as they are; none for a setting of another form."""
    aliases = getattr(settings, "DISTLOCK", {"default": {}})
    return aliases if isinstance(aliases, dict) else {}


def check_views(**_: Any) -> list[CheckMessage]:
    """E004: a lock inside the transaction of ``ATOMIC_REQUESTS``, or of ``@transaction.atomic``.

    The first opens one around a lock on ``get()`` or ``post()`` of a class view, on an action of a
    view set, or below ``@api_view``; the second around all that is below it.
    """
    databases = connections.settings.items()
    atomic = {alias for alias, options in databases if options["ATOMIC_REQUESTS"]}
    urls = getattr(settings, "ROOT_URLCONF", None)
    patterns: list[Any] = [*get_resolver().url_patterns] if urls else []
    found: dict[str, Any] = {}
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            patterns += pattern.url_patterns  # in this loop, too
            continue
        view = pattern.callback
        # `cls` is Django REST framework's.
        view_class = getattr(view, "view_class", None) or getattr(view, "cls", None)
        if view_class is None:
            if _is_refused_inside(set(), view):
                place = f"{view.__module__}.{view.__qualname__}"
                found[place] = place
            continue
        exempt = atomic <= set(getattr(view, "_non_atomic_requests", ()))
        names = getattr(view, "actions", {}).values() or View.http_method_names
        for name in ("dispatch", *names):
            method: Any = getattr(view_class, name, None)
            place = f"{view_class.__module__}.{view_class.__qualname__}.{name}"
            if getattr(method, "__module__", "") == "rest_framework.decorators":  # of @api_view
                method = inspect.getclosurevars(method).nonlocals.get("func")
                place = f"{view_class.__module__}.{view_class.__name__}"
            around = set() if exempt or name == "dispatch" else atomic
            if _is_refused_inside(around, method):
                found[place] = view_class
    return [
        Error(
            f"{place}() is locked inside a transaction, of ATOMIC_REQUESTS or of "
            "@transaction.atomic above it, so each call raises LockInTransaction.",
            hint='Keep it until the COMMIT: zk_locked("…", until="commit"). Or decorate dispatch: '
            '@method_decorator(zk_locked("…"), name="dispatch"), or write @zk_locked above '
            "@api_view and @transaction.atomic.",
            obj=obj,
            id="distlock.E004",
        )
        for place, obj in found.items()
    ]


def _is_refused_inside(opened: set[str], function: Any) -> bool:
    """Return whether a decorated function has a lock that refuses the transactions around it.

    :param opened: the databases that have one around the function itself
    """
    while hasattr(function, "distlock"):  # each decorator above a lock has it, too
        inner = getattr(function, "__wrapped__", None)
        if inspect.isfunction(function):
            decorator = inspect.getclosurevars(function).nonlocals.get("self")
            if isinstance(decorator, transaction.Atomic):
                opened = {*opened, decorator.using or DEFAULT_DB_ALIAS}
        locked = function.distlock
        if opened and locked is not getattr(inner, "distlock", None):
            options = _aliases().get(locked.options.using)
            allowed = isinstance(options, dict) and options.get("IN_TRANSACTION") == "allow"
            if locked.refused_inside(opened) and not allowed:
                return True
        function = inner
    return False


def check_middleware(**_: Any) -> list[CheckMessage]:
    """W001: the middleware is missing."""
    there = MIDDLEWARE in getattr(settings, "MIDDLEWARE", ())
    if there or not getattr(settings, "ROOT_URLCONF", None):
        return []
    return [
        CheckWarning(
            f"{MIDDLEWARE} is not in MIDDLEWARE.",
            hint="Put it first: it turns LockBusy into 423 and LockUnavailable into 503, names "
            "requests in the list of holders, and releases what a view forgot.",
            id="distlock.W001",
        )
    ]


def _explain_error_500(**_: Any) -> None:
    """Say below the traceback of a lock's error that the missing middleware would have answered."""
    error: Any = sys.exc_info()[1]
    if is_refused(error):
        for missing in check_middleware():
            error.__notes__ = [f"{missing.msg} {missing.hint}"]  # Python 3.10 has no add_note()


def check_uwsgi(**_: Any) -> list[CheckMessage]:
    """E005: uWSGI runs without threads, where no session can live (kazoo 219, 538)."""
    uwsgi: Any = sys.modules.get("uwsgi")
    if uwsgi is None:
        return []
    options = {os.fsdecode(name): value for name, value in uwsgi.opt.items()}
    if options.get("enable-threads") or options.get("threads"):
        return []
    return [
        Error(
            "uWSGI runs without threads, so the thread of the locks' session would never run.",
            hint="Start uWSGI with --enable-threads, and with --lazy-apps or "
            "--py-call-uwsgi-fork-hooks: otherwise its workers run none of Python's fork hooks, "
            "such as logging's. Not with --py-call-osafterfork, which aborts on Python 3.13.",
            id="distlock.E005",
        )
    ]


def check_deployment(**_: Any) -> list[CheckMessage]:
    """W003: lock nodes that anybody may delete. W004: a connection that anybody may read."""
    return [
        one
        for alias, options in _aliases().items()
        if isinstance(options, dict)  # or else E002
        for one in settings_of(options.get("HOSTS")).problems_in_deployment(
            f"DISTLOCK[{alias!r}]", options
        )
    ]
