"""Answers busy locks and an absent ZooKeeper in Django REST framework.

::

    REST_FRAMEWORK = {"EXCEPTION_HANDLER": "distlock.contrib.rest_framework.exception_handler"}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distlock.responses import PROBLEM_TYPE, is_refused, problem

from . import extra

with extra("djangorestframework"):
    from rest_framework import views
    from rest_framework.renderers import JSONRenderer
    from rest_framework.response import Response


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """Answer as `distlock.middleware` does; pass other errors to the framework's own handler.

    423 (the setting ``BUSY_STATUS``) for `LockBusy`, 503 for `LockUnavailable`, with
    ``Retry-After``; the transaction of ``ATOMIC_REQUESTS`` rolls back. The body is a problem
    document (RFC 9457), in the format that the view and the client agree on.
    """
    if not is_refused(error):
        return views.exception_handler(error, context)
    document, headers = problem(error)
    views.set_rollback()
    renderer = getattr(context["request"], "accepted_renderer", None)
    return Response(
        document,
        status=document["status"],
        headers=headers,
        content_type=PROBLEM_TYPE if isinstance(renderer, JSONRenderer) else None,
    )
