"""Answers a browser or an API client when a lock is busy or the lock server is away."""

from __future__ import annotations

import math
import random
from http import HTTPStatus
from typing import Any, Final, TypeAlias, TypeGuard

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template import TemplateDoesNotExist
from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from .conf import configuration
from .exceptions import DeadlockDetected, LimitReached, LockBusy, LockUnavailable
from .logs.loggers import logger

#: The media type of a problem document.
PROBLEM_TYPE = "application/problem+json"
_TYPES: Final = ["text/html", "application/json", PROBLEM_TYPE]

#: The reasons why a request could not get its lock.
Refused: TypeAlias = LockBusy | LockUnavailable | DeadlockDetected


def is_refused(error: BaseException) -> TypeGuard[Refused]:
    """Return whether the same request may get its lock at another try.

    A request that gave way in a deadlock may. One that waits only for itself never does: that is a
    mistake in the program.
    """
    if isinstance(error, DeadlockDetected):
        return bool(error.cycle)
    return isinstance(error, LockBusy | LockUnavailable)


def refusal(request: HttpRequest, error: Refused) -> HttpResponse:
    """Return the answer to a request that could not get its lock.

    429 for `LimitReached`; 423 (the setting ``BUSY_STATUS``) for any other `LockBusy`, and for a
    `DeadlockDetected` that gave way; 503 for `LockUnavailable`; with an integer ``Retry-After``,
    spread so that requests refused together do not return together. A problem document (RFC 9457)
    for clients that
    prefer JSON, else the template ``distlock/423.html`` or ``distlock/503.html``, which a site can
    override. The document of a 429 has the template of the limit, ``"customer:<id>"``. The answer
    does not have the key, which the client may not be meant to know.
    It does not say that nothing was changed: a view may write before it asks for a lock.
    With ``DEBUG`` the page for 503 shows the reason.
    """
    document, headers = problem(error)
    status = document["status"]
    response: HttpResponse
    if (request.get_preferred_type(_TYPES) or "").endswith("json"):
        response = JsonResponse(document, status=status, content_type=PROBLEM_TYPE)
    else:
        away = isinstance(error, LockUnavailable)
        template = "distlock/503.html" if away else "distlock/423.html"
        seconds = int(headers["Retry-After"])
        context = {
            "title": document["title"],
            "detail": document["detail"],
            "seconds": seconds,
            "is_safe": request.method in {"GET", "HEAD"},
            # Of Django 6's CSP middleware, or of django-csp, not yet evaluated.
            "csp_nonce": getattr(request, "_csp_nonce", getattr(request, "csp_nonce", "")),
            "reason": str(error) if away and settings.DEBUG else "",
        }
        try:
            response = HttpResponse(render_to_string(template, context, request), status=status)
        except (TemplateDoesNotExist, ImproperlyConfigured):  # a site without Django's templates
            text = f"{document['title']}. {document['detail']}"
            response = HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")
    for name, value in headers.items():
        response[name] = value
    return response


def problem(error: Refused) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the problem document (RFC 9457) of a refusal, and its headers; log a 503's reason."""
    if isinstance(error, LockUnavailable):
        logger.error(
            "A request gets 503 because its lock is not available: %s",
            error,
            extra={"using": error.using, "outcome": "unavailable"},
        )
        status: int = HTTPStatus.SERVICE_UNAVAILABLE
        title = _("This cannot be done safely right now")
    else:
        reached = isinstance(error, LimitReached)
        status = 429 if reached else configuration(error.using).busy_status
        title = _("Somebody else is working on this right now")
    seconds = max(1, math.ceil(error.retry_after * random.uniform(1, 2)))  # noqa: S311 - no secret
    detail = _("Try again in %(seconds)d s.") % {"seconds": seconds}
    document = {"type": "about:blank", "title": title, "status": int(status), "detail": detail}
    if isinstance(error, LimitReached) and error.template:
        document["limit"] = error.template
    return document, {"Retry-After": str(seconds), "Cache-Control": "no-store"}
