"""The metrics of one process; `test_multiprocess` has those of many."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from distlock import (
    LockBusy,
    LockLost,
    LockUnavailable,
    lock_acquired,
    zk_lock,
    zk_locked,
    zk_semaphore,
)
from distlock.contrib.prometheus import Metrics, fleet
from distlock.session.registry import session_for
from distlock_chaos.proxy import TcpProxy
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import ROOT, eventually
from tests.kit.losses import SetOptions
from tests.kit.tools import PATIENCE, MakeOwner, expire

pytestmark = [pytest.mark.usefixtures("tree"), pytest.mark.engines("zookeeper", "redis")]


class Samples:
    """What is told when it is asked for, of one kind of lock."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

    def __call__(
        self,
        name: str,
        template: str = "",
        using: str = "default",
        recipe: str = "Mutex",
        **labels: str,
    ) -> float:
        """The value, 0 where nothing was said of it yet."""
        labels |= {"template": template, "using": using, "recipe": recipe}
        return self.registry.get_sample_value(f"distlock_{name}", labels) or 0.0

    @property
    def text(self) -> str:
        return generate_latest(self.registry).decode()


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.connect()
    yield metrics
    metrics.disconnect()


@pytest.fixture
def samples(metrics: Metrics) -> Samples:
    registry = CollectorRegistry()
    kept = (
        metrics.wait,
        metrics.hold,
        metrics.held,
        metrics.acquires,
        metrics.lost,
        metrics.waiting,
    )
    for metric in (*kept, metrics.node_bytes, metrics.held_long, metrics.waited_long):
        registry.register(metric)
    return Samples(registry)


def test_a_hold_is_measured_from_the_call_to_its_release(samples: Samples) -> None:
    @zk_locked("stock:<sku>", using="other")
    def deduct(sku: int) -> None:
        labels = {"template": "stock:<sku>", "using": "other"}
        assert sku == 42
        assert samples("held", **labels) == 1
        assert samples("wait_seconds_count", **labels) == 1
        assert samples("hold_seconds_count", **labels) == 0

    deduct(42)
    labels = {"template": "stock:<sku>", "using": "other"}
    assert samples("held", **labels) == 0
    assert samples("acquires_total", outcome="acquired", **labels) == 1
    assert samples("wait_seconds_count", **labels) == samples("hold_seconds_count", **labels) == 1
    assert 0 < samples("hold_seconds_sum", **labels) < PATIENCE
    assert 0 < samples("wait_seconds_sum", **labels) < PATIENCE


def test_what_has_an_alert_is_counted_from_zero_on(metrics: Metrics) -> None:
    with zk_lock("k"):
        pass
    rules = (ROOT / "distlock/contrib/prometheus/alerts.yml").read_text()
    rare = re.findall(r'increase\(distlock_(\w+)_total(?:{outcome="(\w+)"})?\[', rules)
    assert len(rare) == 4
    for name, outcome in rare:
        (metric,) = getattr(metrics, name).collect()
        assert any(one.labels.get("outcome", "") == outcome for one in metric.samples), name


def test_a_trace_is_an_exemplar(samples: Samples) -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("site")
    with tracer.start_as_current_span("GET /") as span, zk_lock("k"):
        pass
    with zk_lock("k"):  # outside of it
        pass
    found = re.findall(
        r"distlock_(\w+)_seconds_bucket.* # {trace_id=\"(\w+)\"}",
        openmetrics.generate_latest(samples.registry).decode(),  # type: ignore[no-untyped-call]
    )
    trace = f"{span.get_span_context().trace_id:032x}"
    assert sorted(found) == [("hold", trace), ("wait", trace)]


def test_no_key_is_told(samples: Samples) -> None:
    with zk_lock("stock:secret"), zk_semaphore("mail:secret", 2):
        pass
    assert "distlock_held" in samples.text
    assert "secret" not in samples.text


@pytest.mark.parametrize("permits", [0, 1], ids=["mutex", "semaphore"])
def test_those_who_wait_are_counted_however_their_wait_ends(
    samples: Samples, make_owner: MakeOwner, permits: int
) -> None:
    def lock(timeout: float | None) -> Any:
        options: Any = {"timeout": timeout, "sku": 42}
        template = "stock:<sku>"
        return (
            zk_semaphore(template, permits, **options) if permits else zk_lock(template, **options)
        )

    def waiting(count: int) -> None:
        labels = {"template": "stock:<sku>", "recipe": "Semaphore" if permits else "Mutex"}
        eventually(lambda: samples("waiting", **labels) == count, PATIENCE, f"{count} waiters")

    async def cancelled() -> None:
        task = asyncio.create_task(lock(None).aacquire())
        await asyncio.to_thread(waiting, 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    first = make_owner()
    assert first.now(lock(0).acquire)
    second = make_owner()
    waits = second.submit(lock(None).acquire)
    waiting(1)
    asyncio.run(cancelled())
    waiting(1)
    assert not make_owner().now(lock(0.2).acquire)
    waiting(1)
    first.now(lock(0).release)
    assert waits.result(PATIENCE)
    waiting(0)
    second.now(lock(0).release)


@pytest.mark.usefixtures("holder")
def test_a_busy_lock_is_an_outcome(samples: Samples) -> None:
    with pytest.raises(LockBusy), zk_lock("key", timeout=0.1):
        pass
    assert samples("acquires_total", outcome="busy") == 1
    assert samples("wait_seconds_sum") >= 0.1
    assert samples("hold_seconds_count") == 0


def test_what_lasts_is_counted_while_it_lasts(samples: Samples, set_options: SetOptions) -> None:
    set_options(HELD_LONG=0.2)
    set_options("other", WAITED_LONG=0.2)
    with zk_lock("key"):
        assert not zk_lock("key", using="other").acquire(timeout=1.5)
        eventually(lambda: samples("held_long_total", using="default") > 0, PATIENCE)
    assert samples("waited_long_total", using="other") > 0


def test_an_absent_zookeeper_is_an_outcome(broken_link: TcpProxy, samples: Samples) -> None:
    broken_link.cut()
    with pytest.raises(LockUnavailable), zk_lock("key"):
        pass
    assert samples("acquires_total", outcome="unavailable") == 1
    assert samples("wait_seconds_sum") > 0.5  # CONNECT_TIMEOUT is 1, from the loss on


def test_a_lost_lock_is_not_held_any_more_and_its_release_changes_nothing(
    samples: Samples, zookeeper: ZooKeeper
) -> None:
    lock = zk_lock("key")
    assert lock.acquire()
    assert samples("held") == 1
    expire(zookeeper.hosts, session_for())
    eventually(lambda: samples("lost_total") == 1, PATIENCE, "a lost lock")
    assert samples("held") == 0
    with pytest.raises(LockLost):
        lock.release()
    assert samples("held") == 0
    assert samples("lost_total") == samples("hold_seconds_count") == 1


@pytest.mark.parametrize("first", ["interruption", "metrics"])
def test_an_acquire_that_is_interrupted_at_its_end_leaves_the_gauge_at_zero(
    metrics: Metrics, samples: Samples, first: str
) -> None:
    def interrupt(**_: object) -> None:
        lock_acquired.disconnect(interrupt)
        raise KeyboardInterrupt

    if first == "interruption":
        metrics.disconnect()
    lock_acquired.connect(interrupt)
    metrics.connect()
    with pytest.raises(KeyboardInterrupt):
        zk_lock("key").acquire()
    assert not zk_lock("key").held
    assert samples("held") == 0
    assert samples("acquires_total", outcome="acquired") == (first == "metrics")
    assert samples("hold_seconds_count") == 1


def test_leases_that_another_thread_gives_back_are_counted_back(
    samples: Samples, make_owner: MakeOwner
) -> None:
    semaphore = zk_semaphore("mail", 3)
    assert semaphore.acquire(leases=2)
    assert samples("held", recipe="Semaphore") == 2
    make_owner().now(semaphore.release, 2)
    assert samples("held", recipe="Semaphore") == 0
    assert samples("hold_seconds_count", recipe="Semaphore") == 2


def test_the_bytes_of_lock_nodes_are_measured(samples: Samples) -> None:
    with zk_lock("one") as one, zk_lock("two") as two:
        expected = sum(len(hold.path) + 4 for hold in (one, two))
        value = samples.registry.get_sample_value("distlock_node_bytes", {"using": "default"})
        assert value == expected


def test_the_buckets_can_be_chosen() -> None:
    registry = CollectorRegistry()
    Metrics(registry, buckets=[1, 2]).wait.labels("", "default", "Mutex").observe(1.5)
    buckets = [
        line for line in Samples(registry).text.splitlines() if "wait_seconds_bucket" in line
    ]
    assert [line.partition(" ")[2] for line in buckets] == ["0.0", "1.0", "1.0"]


def test_the_how_to_names_all_metrics() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    page = (ROOT / "docs" / "how-to" / "metrics.md").read_text()
    rows = re.findall(r"^\| (`distlock_.*`) \|", page, re.MULTILINE)
    # A counter's name ends in _total where it is told, and not in the registry.
    names = {name.removesuffix("_total") for name in re.findall(r"distlock_\w+", " ".join(rows))}
    assert names == {
        *(metric.name for metric in registry.collect()),
        *(f"distlock_fleet_{name}" for name in {**fleet.OF_ALIAS, **fleet.OF_TEMPLATE}),
    }
