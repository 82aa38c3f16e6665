"""Makes OpenTelemetry spans of waits and holds, with receivers of the signals.

::

    INSTALLED_APPS = ["distlock", "distlock.contrib.opentelemetry.OpenTelemetryConfig", …]

A hold's span links to the span of its wait. Both are children of the span that asked for the lock.
Neither becomes the current span: a hold may begin in one thread or task and end in another.
"""

from __future__ import annotations

import time
from typing import Any
from weakref import WeakKeyDictionary

from django.apps import AppConfig

from distlock.owner.hold import Hold

from . import Receivers, extra, outcome_of

with extra("opentelemetry-api"):
    from opentelemetry.trace import Link, Span, Status, StatusCode, TracerProvider, get_tracer


class Spans(Receivers):
    """The receivers that make the spans.

    All have the attributes ``distlock.key``, ``distlock.template``, ``distlock.using`` and
    ``distlock.recipe``. A wait has ``distlock.outcome``, and a granted one ``distlock.token``.

    :param tracer_provider: by default that of the process
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = get_tracer("distlock", tracer_provider=tracer_provider)
        self._of_hold: WeakKeyDictionary[Hold, Span] = WeakKeyDictionary()

    def _acquired(self, *, hold: Hold, waited: float, **facts: Any) -> None:
        now = time.time_ns()
        wait = self._begin("wait", now - int(waited * 1e9), facts)
        wait.set_attributes({"distlock.outcome": "acquired", "distlock.token": hold.token})
        wait.end(now)
        span = self._begin("hold", now, facts, links=[Link(wait.get_span_context())])
        span.set_attribute("distlock.token", hold.token)
        self._of_hold[hold] = span

    def _failed(self, *, waited: float, error: Exception | None = None, **facts: Any) -> None:
        wait = self._begin("wait", time.time_ns() - int(waited * 1e9), facts)
        wait.set_attribute("distlock.outcome", outcome_of(error) if error else "busy")
        if error:
            wait.record_exception(error)
            wait.set_status(Status(StatusCode.ERROR, str(error)))
        wait.end()

    _contended = _failed

    def _lost(self, *, hold: Hold, reason: str, **_: Any) -> None:
        span = self._of_hold.get(hold)
        if span is not None:
            span.add_event("lost", {"reason": reason})
            span.set_status(Status(StatusCode.ERROR, "The lock was lost while held."))

    def _released(self, *, hold: Hold, **_: Any) -> None:
        span = self._of_hold.pop(hold, None)
        if span is not None:
            span.end()

    def _begin(self, what: str, at: int, facts: dict[str, Any], **options: Any) -> Span:
        template = facts["template"]
        attributes = {
            "distlock.key": facts["key"],
            "distlock.template": template,
            "distlock.using": facts["using"],
            "distlock.recipe": facts["sender"].__name__,
        }
        # Few names, as backends group by them: no key.
        name = f"distlock {what} {template}".rstrip()
        return self._tracer.start_span(name, start_time=at, attributes=attributes, **options)


class OpenTelemetryConfig(AppConfig):
    """Traces with the tracer provider of the process."""

    name = "distlock.contrib.opentelemetry"
    label = "distlock_opentelemetry"
    spans: Spans | None = None

    def ready(self) -> None:
        if OpenTelemetryConfig.spans is None:
            OpenTelemetryConfig.spans = Spans()
        OpenTelemetryConfig.spans.connect()
