"""Counts the locks of this process for Prometheus, with receivers of the signals.

::

    INSTALLED_APPS = ["distlock", "distlock.contrib.prometheus.PrometheusConfig", …]

The labels have the template, never the key: there may be as many keys as rows. With OpenTelemetry,
a wait and a hold have the id of their trace as an exemplar.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from django.apps import AppConfig

from distlock.contrib import Receivers, extra, outcome_of
from distlock.lease.hold import LeaseHold
from distlock.owner.hold import Hold
from distlock.session.registry import session_for
from distlock.signals import BUCKETS

with extra("prometheus-client"):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram


_LABELS = ("template", "using", "recipe")
_Labels: TypeAlias = tuple[str, str, str]


class Metrics(Receivers):
    """The metrics, and the receivers that update them.

    All have the labels ``template`` (of `zk_locked`, empty for other locks), ``using`` (the alias)
    and ``recipe`` (``Mutex``, ``Semaphore``, …).

    :param registry: the registry for the metrics
    :param buckets: of the histograms, in seconds
    """

    def __init__(
        self, registry: CollectorRegistry = REGISTRY, *, buckets: Sequence[float] = BUCKETS
    ) -> None:
        timed: Any = partial(Histogram, labelnames=_LABELS, registry=registry, buckets=buckets)
        counted: Any = partial(Counter, labelnames=_LABELS, registry=registry)
        measured: Any = partial(Gauge, registry=registry)
        self.wait: Histogram = timed(
            "distlock_wait_seconds", "Time from the call to its end, with the lock or without."
        )
        self.hold: Histogram = timed(
            "distlock_hold_seconds", "Time from the grant of a lock to its release."
        )
        self.held: Gauge = measured(
            "distlock_held",
            "Locks that are held now, without persistent leases.",
            _LABELS,
            multiprocess_mode="livesum",
        )
        self.waiting: Gauge = measured(
            "distlock_waiting",
            "Acquires that wait behind others now.",
            _LABELS,
            multiprocess_mode="livesum",
        )
        self.acquires: Counter = counted(
            "distlock_acquires",
            "How first, not reentrant, acquires ended: acquired, busy, unavailable, deadlock, "
            "error.",
            labelnames=(*_LABELS, "outcome"),
        )
        self.bypassed: Counter = counted(
            "distlock_bypassed", "Blocks and calls that went on without their lock."
        )
        self.lost: Counter = counted("distlock_lost", "Locks that were lost while held.")
        self.at_risk: Counter = counted(
            "distlock_at_risk", "How often the connection was gone under a lock that was held."
        )
        self.held_long: Counter = counted(
            "distlock_held_long",
            "Reports of a hold that lasts for long, by the process that holds.",
        )
        self.waited_long: Counter = counted(
            "distlock_waited_long", "Reports of a wait that lasts, by the process that waits."
        )
        self.node_bytes: Gauge = measured(
            "distlock_node_bytes",
            "Bytes of the paths of all lock nodes of one process; MAX_NODE_BYTES is the most.",
            ["using"],
            multiprocess_mode="livemax",
        )
        #: The labels whose rare counters are there.
        self._begun: set[_Labels] = set()
        #: The counted holds and waits, and their gauges: a hold may be released that was never
        #: announced, or that was lost first.
        self._counted: WeakKeyDictionary[Any, Gauge] = WeakKeyDictionary()

    def _acquired(self, *, hold: Hold, waited: float, **facts: Any) -> None:
        labels = _labels_of(**facts)
        self._ended(labels, "acquired", waited)
        self._measure(hold.using)
        if not isinstance(hold, LeaseHold):  # another process may release a lease, or none
            self._count_up(hold, self.held.labels(*labels))

    def _failed(self, *, waited: float, error: Exception | None = None, **facts: Any) -> None:
        self._ended(_labels_of(**facts), outcome_of(error) if error else "busy", waited)

    _contended = _failed

    def _ended(self, labels: _Labels, outcome: str, waited: float) -> None:
        self.wait.labels(*labels).observe(waited, _exemplar())
        self.acquires.labels(*labels, outcome).inc()
        if labels not in self._begun:
            self._begun.add(labels)
            # To count from 0 on: Prometheus takes one that begins with 1 for one that it missed.
            self.acquires.labels(*labels, "deadlock")
            for rare in (self.lost, self.held_long, self.bypassed):
                rare.labels(*labels)

    def _waits(self, *, wait: object, over: bool, **facts: Any) -> None:
        if over:
            self._count_down(wait)
        else:
            self._count_up(wait, self.waiting.labels(*_labels_of(**facts)))

    def _bypassed(self, **facts: Any) -> None:
        self.bypassed.labels(*_labels_of(**facts)).inc()

    def _at_risk(self, **facts: Any) -> None:
        self.at_risk.labels(*_labels_of(**facts)).inc()

    def _held_long(self, **facts: Any) -> None:
        self.held_long.labels(*_labels_of(**facts)).inc()

    def _waited_long(self, **facts: Any) -> None:
        self.waited_long.labels(*_labels_of(**facts)).inc()

    def _lost(self, *, hold: Hold, **facts: Any) -> None:
        self._count_down(hold)
        self.lost.labels(*_labels_of(**facts)).inc()

    def _released(self, *, hold: Hold, held_for: float, **facts: Any) -> None:
        self._count_down(hold)
        self._measure(hold.using)
        self.hold.labels(*_labels_of(**facts)).observe(held_for, _exemplar())

    def _measure(self, using: str) -> None:
        self.node_bytes.labels(using).set(session_for(using).nodes.total)

    def _count_up(self, one: object, gauge: Gauge) -> None:
        self._counted[one] = gauge
        gauge.inc()

    def _count_down(self, one: object) -> None:
        gauge = self._counted.pop(one, None)
        if gauge is not None:
            gauge.dec()


def _labels_of(*, sender: type, template: str, using: str, **_: Any) -> _Labels:
    return template, using, sender.__name__


def _exemplar() -> dict[str, str] | None:
    """Return the id of the current trace, if that is recorded."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    span = trace and trace.get_current_span()
    if not span or not span.is_recording():
        return None
    return {"trace_id": f"{span.get_span_context().trace_id:032x}"}


class PrometheusConfig(AppConfig):
    """Counts in the default registry of prometheus_client."""

    name = "distlock.contrib.prometheus"
    label = "distlock_prometheus"
    metrics: Metrics | None = None

    def ready(self) -> None:
        # Once: the registry refuses a metric's second registration.
        if PrometheusConfig.metrics is None:
            PrometheusConfig.metrics = Metrics()
        PrometheusConfig.metrics.connect()
