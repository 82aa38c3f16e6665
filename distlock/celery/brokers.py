"""Knows the limits and headers of brokers that carry delayed tasks."""

from __future__ import annotations

from typing import Any, Final

try:
    from celery.utils.quorum_queues import detect_quorum_queues
except ImportError:  # Celery 5.4 delays in the worker
    detect_quorum_queues = None

#: RabbitMQ drops a message that passes the same delay queue twice, by its own record of the way.
#: Celery 5.6 and later filter these headers, 5.4 and 5.5 do not.
_WAY: Final = ("x-death", "x-first-death-", "x-last-death-")
#: Part of the visibility timeout that a pause may take: the message waits for a free process, too.
_PART: Final = 0.5


def without_way(headers: dict[str, Any] | None) -> dict[str, Any]:
    """Return the headers of a message without RabbitMQ's record of the message's way."""
    return {k: v for k, v in (headers or {}).items() if not k.startswith(_WAY)}


def pause_limits(app: Any) -> tuple[float, float]:
    """Return the shortest and the longest pause that the broker of `app` allows, in seconds.

    Quorum queues delay by whole seconds, and Celery refuses 0. A broker with a visibility timeout
    delivers a message again that a worker keeps for longer.
    """
    connection = app.producer_pool.connections.connection
    driver = connection.transport.driver_type
    whole_seconds = detect_quorum_queues is not None and detect_quorum_queues(app, driver)[0]
    visible = connection.transport_options.get("visibility_timeout")
    longest = float("inf") if visible is None else _PART * float(visible)
    return (1.0 if whole_seconds else 0.0), longest
