"""System checks. They read settings and code, and never connect."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags
from django.core.checks import Warning as CheckWarning
from django.db import connections
from django.urls import URLPattern, URLResolver, get_resolver

from . import conf
from .decorators import declared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MIDDLEWARE = "distlock.middleware.DistlockMiddleware"
_HTTP_METHODS = ("get", "post", "put", "patch", "delete")


def register() -> None:
    """Register the checks with Django."""
    checks.register(check_settings, "distlock")
    checks.register(check_templates, "distlock")
    checks.register(check_views, "distlock", Tags.urls)
    checks.register(check_middleware, "distlock")
    checks.register(check_uwsgi, "distlock")
    checks.register(check_deployment, "distlock", Tags.security, deploy=True)


def check_settings(**_: Any) -> list[CheckMessage]:
    """E001: ``DISTLOCK`` is no dict of aliases. E002: an alias has a wrong setting."""
    aliases = getattr(settings, "DISTLOCK", {"default": {}})
    if not isinstance(aliases, dict) or "default" not in aliases:
        return [
            Error(
                'DISTLOCK is not a dict with the alias "default".',
                hint='Write DISTLOCK = {"default": {"HOSTS": "127.0.0.1:2181"}}.',
                id="distlock.E001",
            )
        ]
    return [
        Error(problem.message, hint=problem.hint, id="distlock.E002")
        for alias, options in aliases.items()
        for problem in conf.problems(alias, options)
    ]


def check_templates(**_: Any) -> list[CheckMessage]:
    """E003: a key template names an argument that the function does not have."""
    return [
        Error(
            f"{locked.source}: the lock key {locked.template.text!r} of {locked.name} names "
            f"{', '.join(map(repr, missing))}, which is no argument of {locked.name}.",
            hint=f"It has: {', '.join(locked.signature.parameters) or 'none'}.",
            id="distlock.E003",
        )
        for locked in sorted(declared, key=lambda locked: locked.source)
        if (missing := locked.template.missing_from(locked.signature))
    ]


def check_views(**_: Any) -> list[CheckMessage]:
    """E004: ``zk_locked`` on ``get()`` or ``post()`` of a class view under ``ATOMIC_REQUESTS``."""
    atomic = {
        alias for alias, options in connections.settings.items() if options["ATOMIC_REQUESTS"]
    }
    if not atomic or not getattr(settings, "ROOT_URLCONF", None):
        return []
    found = dict.fromkeys(
        (view_class, method)
        for view, view_class in _class_views(get_resolver().url_patterns)
        if not atomic <= set(getattr(view, "_non_atomic_requests", ()))
        for method in _HTTP_METHODS
        if hasattr(getattr(view_class, method, None), "distlock")
    )
    return [
        Error(
            f"{view_class.__module__}.{view_class.__qualname__}.{method}() is locked inside the "
            "transaction of ATOMIC_REQUESTS: its lock would be released before COMMIT.",
            hint='Decorate dispatch: @method_decorator(zk_locked("…"), name="dispatch").',
            obj=view_class,
            id="distlock.E004",
        )
        for view_class, method in found
    ]


def _class_views(patterns: Iterable[Any]) -> Iterator[tuple[Any, type]]:
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from _class_views(pattern.url_patterns)
        elif isinstance(pattern, URLPattern):
            view_class = getattr(pattern.callback, "view_class", None)
            if view_class is not None:
                yield pattern.callback, view_class


def check_middleware(**_: Any) -> list[CheckMessage]:
    """W001: the middleware is missing. W002: it is there more than once."""
    count = list(getattr(settings, "MIDDLEWARE", ())).count(MIDDLEWARE)
    if count == 0 and getattr(settings, "ROOT_URLCONF", None):
        return [
            CheckWarning(
                f"{MIDDLEWARE} is not in MIDDLEWARE.",
                hint="Put it first: it turns LockBusy into 423 and LockUnavailable into 503, names "
                "requests in the list of holders, and releases what a view forgot.",
                id="distlock.W001",
            )
        ]
    if count > 1:
        return [
            CheckWarning(
                f"{MIDDLEWARE} is in MIDDLEWARE {count} times; once will do.", id="distlock.W002"
            )
        ]
    return []


def check_uwsgi(**_: Any) -> list[CheckMessage]:
    """E005: uWSGI runs without threads, where no session can live (kazoo 219, 538)."""
    uwsgi = sys.modules.get("uwsgi")
    if uwsgi is None:
        return []
    options = uwsgi.opt
    if options.get("enable-threads") or options.get("threads"):
        return []
    return [
        Error(
            "uWSGI runs without threads, so the ZooKeeper session's thread would never run.",
            hint="Start uWSGI with --enable-threads.",
            id="distlock.E005",
        )
    ]


def check_deployment(**_: Any) -> list[CheckMessage]:
    """W003: lock nodes that anybody may delete. W004: a connection that anybody may read."""
    messages: list[CheckMessage] = []
    aliases = getattr(settings, "DISTLOCK", {"default": {}})
    for alias, options in aliases.items() if isinstance(aliases, dict) else ():
        if not isinstance(options, dict):
            continue  # E002 says so
        if options.get("ACL", "open") == "open":
            messages.append(
                CheckWarning(
                    f"DISTLOCK[{alias!r}]: whoever reaches ZooKeeper can delete a lock node.",
                    hint='Set AUTH and ACL = "creator".',
                    id="distlock.W003",
                )
            )
        if options.get("TLS") is None:
            messages.append(
                CheckWarning(
                    f"DISTLOCK[{alias!r}]: the connection to ZooKeeper is not encrypted.",
                    hint='Set TLS, for example {"ca": "/etc/ssl/zookeeper-ca.pem"}.',
                    id="distlock.W004",
                )
            )
    return messages
