"""Defines the system checks. They read settings and code, and never connect."""

from __future__ import annotations

import inspect
import os
import sys
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags
from django.core.checks import Warning as CheckWarning
from django.db import connections
from django.urls import URLPattern, URLResolver, get_resolver

from .conf import rules
from .conf.redis_urls import is_encrypted, is_sentinel
from .decorators import declared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MIDDLEWARE = "distlock.middleware.DistlockMiddleware"
#: Celery's variable: its Django fixup runs no checks.
_SKIP_CHECKS = "CELERY_SKIP_CHECKS"
_HTTP_METHODS = ("get", "post", "put", "patch", "delete")


def register() -> None:
    """Register the checks with Django."""
    checks.register(check_settings, "distlock")
    checks.register(check_embedded, "distlock")
    checks.register(check_replicas, "distlock")
    checks.register(check_templates, "distlock")
    checks.register(check_views, "distlock", Tags.urls)
    checks.register(check_middleware, "distlock")
    checks.register(check_uwsgi, "distlock")
    checks.register(check_deployment, "distlock", Tags.security, deploy=True)


def check_settings(**_: Any) -> list[CheckMessage]:
    """E001: ``DISTLOCK`` is not a dict of aliases. E002: an alias has a wrong setting."""
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
        for problem in rules.problems(alias, options)
    ]


def _aliases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the aliases whose options are a dict; E001 and E002 report the others."""
    aliases = getattr(settings, "DISTLOCK", {"default": {}})
    for alias, options in aliases.items() if isinstance(aliases, dict) else ():
        if isinstance(options, dict):
            yield alias, options


def check_embedded(**_: Any) -> list[CheckMessage]:
    """E007: an alias uses the embedded server without ``DEBUG``."""
    return [
        Error(problem.message, hint=problem.hint, id="distlock.E007")
        for alias, options in _aliases()
        for problem in rules.embedded_problems(alias, options)
    ]


def check_replicas(**_: Any) -> list[CheckMessage]:
    """W006: Sentinels may make a replica the primary that does not have a lock."""
    return [
        CheckWarning(
            f"DISTLOCK[{alias!r}] uses Sentinel without REPLICAS: a failover may forget a "
            "lock, a lease may have two owners for the rest of its time, and a primary that is cut "
            "off may go on confirming heartbeats.",
            hint="Set REPLICAS to the number of replicas that must have a lock before it counts, "
            "such as 1.",
            id="distlock.W006",
        )
        for alias, options in _aliases()
        if is_sentinel(options.get("HOSTS")) and not options.get("REPLICAS")
    ]


def check_templates(**_: Any) -> list[CheckMessage]:
    """E003: a key template names an argument that the function does not have.

    Only imported functions are known. Django keeps its checks in a set, and the check that imports
    the URLconf may run after this one, so this one imports the URLconf and Celery's tasks itself.
    """
    _url_patterns()
    return [*_import_tasks(), *template_errors()]


def _import_tasks() -> list[CheckMessage]:
    """Import the task modules of each Celery app. W005: one of them cannot be imported."""
    if "celery" not in sys.modules:
        return []
    from celery._state import _get_active_apps  # noqa: PLC0415 - a site may have no Celery

    # Before it imports the modules, Celery would run all checks: this one again, without an end.
    outside = os.environ.get(_SKIP_CHECKS)
    os.environ[_SKIP_CHECKS] = "1"
    try:
        # `current_app` is another one in the thread in which `runserver` checks.
        for app in list(_get_active_apps()):
            app.loader.import_default_modules()
    except Exception as error:  # noqa: BLE001 - of the site's own modules
        return [
            CheckWarning(
                "The lock keys of tasks were not all checked, because Celery's task modules cannot "
                f"be imported: {type(error).__name__}: {error}",
                hint="Correct the import. Silence this where no worker runs, if the module is "
                "missing there on purpose.",
                id="distlock.W005",
            )
        ]
    finally:
        if outside is None:
            del os.environ[_SKIP_CHECKS]
        else:
            os.environ[_SKIP_CHECKS] = outside
    return []


def template_errors() -> list[CheckMessage]:
    """Return E003 for the functions that are known by now."""
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
    """E004: ``zk_locked`` inside the transaction that ``ATOMIC_REQUESTS`` opens around a view.

    It finds them on ``get()`` or ``post()`` of a class view, on an action of a view set, and below
    ``@api_view``.
    """
    atomic = {
        alias for alias, options in connections.settings.items() if options["ATOMIC_REQUESTS"]
    }
    if not atomic:
        return []
    found = dict.fromkeys(
        inside
        for view in _views(_url_patterns())
        if not atomic <= set(getattr(view, "_non_atomic_requests", ()))
        for inside in _locked_inside(view)
    )
    return [
        Error(
            f"{name}() is locked inside the transaction of ATOMIC_REQUESTS: its lock would be "
            "released before COMMIT.",
            hint=f"{hint} Or begin inside the lock: transaction.non_atomic_requests on the view, "
            'and zk_locked("…", atomic=True) where it is now.',
            obj=view_class,
            id="distlock.E004",
        )
        for view_class, name, hint in found
    ]


def _url_patterns() -> Iterable[Any]:
    """Import the URLconf, and return its patterns; none for a project without one."""
    return get_resolver().url_patterns if getattr(settings, "ROOT_URLCONF", None) else ()


def _views(patterns: Iterable[Any]) -> Iterator[Any]:
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from _views(pattern.url_patterns)
        elif isinstance(pattern, URLPattern):
            yield pattern.callback


def _locked_inside(view: Any) -> Iterator[tuple[type, str, str]]:
    """Yield the class, the name and the hint of each locked function that a class view calls."""
    # `cls` is the class of Django REST framework's view sets, which have no `view_class`.
    view_class = getattr(view, "view_class", None) or getattr(view, "cls", None)
    if view_class is None:
        return
    for name in getattr(view, "actions", {}).values() or _HTTP_METHODS:
        function: Any = getattr(view_class, name, None)
        if hasattr(function, "distlock"):
            yield (
                view_class,
                f"{view_class.__module__}.{view_class.__qualname__}.{name}",
                'Decorate dispatch: @method_decorator(zk_locked("…"), name="dispatch").',
            )
        elif getattr(function, "__module__", "") == "rest_framework.decorators":
            below: Any = inspect.getclosurevars(function).nonlocals.get("func")
            if hasattr(below, "distlock"):
                yield view_class, below.distlock.name, "Write @zk_locked above @api_view."


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
    for alias, options in _aliases():
        redis = rules.is_redis(options)
        if not redis and options.get("ACL", "open") == "open":
            messages.append(
                CheckWarning(
                    f"DISTLOCK[{alias!r}]: whoever reaches ZooKeeper can delete a lock node.",
                    hint='Set AUTH and ACL = "creator".',
                    id="distlock.W003",
                )
            )
        if redis and not is_encrypted(options["HOSTS"]):
            messages.append(
                CheckWarning(
                    f"DISTLOCK[{alias!r}]: the connection to Redis is not encrypted.",
                    hint='Write "rediss://" in HOSTS, or "rediss+sentinel://".',
                    id="distlock.W004",
                )
            )
        if not redis and options.get("TLS") is None:
            messages.append(
                CheckWarning(
                    f"DISTLOCK[{alias!r}]: the connection to ZooKeeper is not encrypted.",
                    hint='Set TLS, for example {"ca": "/etc/ssl/zookeeper-ca.pem"}.',
                    id="distlock.W004",
                )
            )
    return messages
