"""Spans of waits and holds, as an exporter gets them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from distlock import (
    Hold,
    LockBusy,
    LockLost,
    LockUnavailable,
    lock_acquired,
    zk_lock,
    zk_locked,
)
from distlock.contrib.opentelemetry import Spans
from distlock.owner.owner import current
from distlock.session.registry import session_for
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, expire

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]


class Traces:
    """The spans that have ended."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("site")

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.exporter.get_finished_spans()]

    def __getitem__(self, name: str) -> ReadableSpan:
        (span,) = (span for span in self.exporter.get_finished_spans() if span.name == name)
        return span


@pytest.fixture
def traces() -> Iterator[Traces]:
    traces = Traces()
    spans = Spans(traces.provider)
    spans.connect()
    yield traces
    spans.disconnect()
    traces.provider.shutdown()


def lasted(span: ReadableSpan) -> float:
    """Seconds."""
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


def test_a_wait_and_a_hold_are_spans_of_which_the_second_links_to_the_first(
    traces: Traces,
) -> None:
    holds: list[Hold] = []

    @zk_locked("stock:<sku>")
    def deduct(sku: int) -> None:
        with zk_lock(f"stock:{sku}") as hold:
            holds.append(hold)
        assert traces.names == ["distlock wait stock:<sku>"]

    deduct(42)
    assert traces.names == ["distlock wait stock:<sku>", "distlock hold stock:<sku>"]
    wait, hold = (traces[name] for name in traces.names)
    (link,) = hold.links
    assert link.context == wait.context
    assert wait.end_time == hold.start_time
    facts = {
        "distlock.key": "stock:42",
        "distlock.template": "stock:<sku>",
        "distlock.using": "default",
        "distlock.recipe": "Mutex",
        "distlock.token": holds[0].token,
    }
    assert hold.attributes == facts
    assert wait.attributes == {**facts, "distlock.outcome": "acquired"}
    assert wait.status.status_code is hold.status.status_code is StatusCode.UNSET


@pytest.mark.usefixtures("holder")
def test_a_wait_in_vain_is_a_span(traces: Traces) -> None:
    with pytest.raises(LockBusy), zk_lock("key", timeout=0.1):
        pass
    span = traces["distlock wait"]
    assert span.attributes is not None
    assert span.attributes["distlock.outcome"] == "busy"
    assert span.status.status_code is StatusCode.UNSET
    assert 0.1 <= lasted(span) < PATIENCE


def test_an_absent_zookeeper_is_an_error_of_the_wait(broken_link: TcpProxy, traces: Traces) -> None:
    broken_link.cut()
    with pytest.raises(LockUnavailable), zk_lock("key"):
        pass
    span = traces["distlock wait"]
    assert span.attributes is not None
    assert span.attributes["distlock.outcome"] == "unavailable"
    assert span.status.status_code is StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]
    assert lasted(span) > 0.5  # CONNECT_TIMEOUT is 1, from the loss on


def test_a_loss_is_an_event_and_an_error_of_the_hold(traces: Traces, zookeeper: ZooKeeper) -> None:
    lock = zk_lock("key")
    assert lock.acquire()
    hold = current().held["default", "key"].hold
    expire(zookeeper.hosts, session_for())
    eventually(lambda: hold.lost, PATIENCE, "the loss")
    with pytest.raises(LockLost):
        lock.release()
    span = traces["distlock hold"]
    (lost,) = span.events
    assert (lost.name, lost.attributes) == ("lost", {"reason": "session"})
    assert span.status.status_code is StatusCode.ERROR


def test_an_acquire_that_is_interrupted_before_it_is_traced_has_no_span(traces: Traces) -> None:
    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    spans = Spans(traces.provider)
    lock_acquired.connect(interrupt)
    spans.connect()
    try:
        with pytest.raises(KeyboardInterrupt):
            zk_lock("key").acquire()
    finally:
        lock_acquired.disconnect(interrupt)
        spans.disconnect()
    assert traces.names == ["distlock wait", "distlock hold"]  # those of the fixture


def test_without_a_provider_nothing_is_made_and_nothing_fails() -> None:
    spans = Spans()
    spans.connect()
    try:
        with zk_lock("key") as hold:
            assert not spans._of_hold[hold].is_recording()
    finally:
        spans.disconnect()
