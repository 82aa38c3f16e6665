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
from django.db import connections
from django.urls import URLResolver, get_resolver
from django.views import View

from .conf import rules
from .conf.redis_urls import is_encrypted, is_sentinel

MIDDLEWARE = "distlock.middleware.DistlockMiddleware"


def register() -> None:
    checks.register(check_settings, "distlock")
    checks.register(check_views, "distlock", Tags.urls)
    checks.register(check_middleware, "distlock")
    checks.register(check_uwsgi, "distlock")
    checks.register(check_deployment, "distlock", Tags.security, deploy=True)


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
    messages: list[CheckMessage] = []
    for alias, options in aliases.items():
        for id_, problems in (
            ("distlock.E002", rules.problems(alias, options)),
            ("distlock.E007", rules.embedded_problems(alias, options)),
        ):
            messages += [Error(one.message, hint=one.hint, id=id_) for one in problems]
        if (
            isinstance(options, dict)
            and is_sentinel(options.get("HOSTS"))
            and not options.get("REPLICAS")
        ):
            messages.append(
                CheckWarning(
                    f"DISTLOCK[{alias!r}] uses Sentinel without REPLICAS: a failover may forget a "
                    "lock, a lease may have two owners for the rest of its time, and a primary "
                    "that is cut off may go on confirming heartbeats.",
                    hint="Set REPLICAS to the number of replicas that must have a lock before it "
                    "counts, such as 1.",
                    id="distlock.W006",
                )
            )
    return messages


def _aliases() -> dict[str, Any]:
    """Return the aliases of ``DISTLOCK``, as they are; none for a setting of another form."""
    aliases = getattr(settings, "DISTLOCK", {"default": {}})
    return aliases if isinstance(aliases, dict) else {}


def check_views(**_: Any) -> list[CheckMessage]:
    """E004: a lock inside the transaction that ``ATOMIC_REQUESTS`` opens around a view.

    It is on ``get()`` or ``post()`` of a class view, on an action of a view set, or below
    ``@api_view``.
    """
    databases = connections.settings.items()
    atomic = {alias for alias, options in databases if options["ATOMIC_REQUESTS"]}
    urls = atomic and getattr(settings, "ROOT_URLCONF", None)
    patterns: list[Any] = [*get_resolver().url_patterns] if urls else []
    found: dict[str, type] = {}
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            patterns += pattern.url_patterns  # in this loop, too
            continue
        view = pattern.callback
        # `cls` is Django REST framework's.
        view_class = getattr(view, "view_class", None) or getattr(view, "cls", None)
        if view_class is None or atomic <= set(getattr(view, "_non_atomic_requests", ())):
            continue
        for name in getattr(view, "actions", {}).values() or View.http_method_names:
            method: Any = getattr(view_class, name, None)
            place = f"{view_class.__module__}.{view_class.__qualname__}.{name}"
            if getattr(method, "__module__", "") == "rest_framework.decorators":  # of @api_view
                method = inspect.getclosurevars(method).nonlocals.get("func")
                place = f"{view_class.__module__}.{view_class.__name__}"
            if locked := getattr(method, "distlock", None):
                options = _aliases().get(locked.options.using)
                if not (isinstance(options, dict) and options.get("IN_TRANSACTION") == "allow"):
                    found[place] = view_class
    return [
        Error(
            f"{place}() is locked inside the transaction of ATOMIC_REQUESTS, so each call raises "
            "LockInTransaction.",
            hint='Decorate dispatch: @method_decorator(zk_locked("…"), name="dispatch"), or write '
            "@zk_locked above @api_view. Or begin inside the lock: transaction.non_atomic_requests "
            'on the view, and zk_locked("…", atomic=True) where it is now.',
            obj=view_class,
            id="distlock.E004",
        )
        for place, view_class in found.items()
    ]


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
    messages: list[CheckMessage] = []

    def warn(alias: str, what: str, hint: str, id_: str) -> None:
        messages.append(CheckWarning(f"DISTLOCK[{alias!r}]: {what}", hint=hint, id=id_))

    for alias, options in _aliases().items():
        if not isinstance(options, dict):
            continue  # E002
        if rules.is_redis(options):
            if not is_encrypted(options["HOSTS"]):
                hint = 'Write "rediss://" in HOSTS, or "rediss+sentinel://".'
                warn(alias, "the connection to Redis is not encrypted.", hint, "distlock.W004")
            continue
        if options.get("ACL", "open") == "open":
            hint = 'Set AUTH and ACL = "creator".'
            what = "whoever reaches ZooKeeper can delete a lock node."
            warn(alias, what, hint, "distlock.W003")
        if options.get("TLS") is None:
            hint = 'Set TLS, for example {"ca": "/etc/ssl/zookeeper-ca.pem"}.'
            warn(alias, "the connection to ZooKeeper is not encrypted.", hint, "distlock.W004")
    return messages
