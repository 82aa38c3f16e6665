"""Each part is imported lazily, and says what to install where its library is missing."""

from __future__ import annotations

import pytest

from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import spawn_python

pytestmark = pytest.mark.deep

PARTS = {
    "prometheus": ("prometheus_client", "prometheus-client"),
    "opentelemetry": ("opentelemetry", "opentelemetry-api"),
    "health_check": ("health_check", "django-health-check"),
    "rest_framework": ("rest_framework", "djangorestframework"),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_missing_library_is_said_with_what_to_type(part: str) -> None:
    library, package = PARTS[part]
    code = f"""
import django, importlib, sys
django.setup()
sys.modules[{library!r}] = None
try:
    importlib.import_module("distlock.contrib.{part}")
except ImportError as error:
    print(error)
"""
    with spawn_python(code) as process:
        out, err = process.communicate(timeout=60)
    assert f"pip install {package}" in out, err
    assert library in out


@pytest.mark.parametrize(
    "config", ["prometheus.PrometheusConfig", "opentelemetry.OpenTelemetryConfig"]
)
def test_an_app_whose_library_is_missing_says_so_at_the_start(config: str) -> None:
    library, package = PARTS[config.partition(".")[0]]
    code = f"""
import sys
sys.modules[{library!r}] = None
import django
from django.conf import settings
settings.configure(INSTALLED_APPS=["distlock", "distlock.contrib.{config}"])
django.setup()
"""
    with spawn_python(code) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"pip install {package}" in err.splitlines()[-1]


def test_nothing_of_this_is_imported_for_a_site_that_does_not_ask_for_it() -> None:
    code = f"""
import sys
import django; django.setup()
import distlock
from distlock import zk_lock, zk_locked
zk_locked("feed")(lambda: None)
print([name for name in {[library for library, _ in PARTS.values()]} if name in sys.modules])
print([name for name in sys.modules if name.startswith("distlock.contrib")])
"""
    with spawn_python(code) as process:
        out, err = process.communicate(timeout=60)
    assert out.splitlines() == ["[]", "[]"], err


def test_both_apps_can_be_installed_and_get_ready_twice(
    zookeeper: ZooKeeper, namespace: str
) -> None:
    alias = {"HOSTS": zookeeper.hosts, "NAMESPACE": namespace, "CONNECT_TIMEOUT": 20}
    code = f"""
import django
from django.apps import apps
from django.conf import settings
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import REGISTRY

settings.configure(
    INSTALLED_APPS=[
        "distlock",
        "distlock.contrib.prometheus.PrometheusConfig",
        "distlock.contrib.opentelemetry.OpenTelemetryConfig",
    ],
    DISTLOCK={{"default": {alias}}},
)
django.setup()
for app in apps.get_app_configs():
    app.ready()
exporter = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())  # after the apps, as some sites do
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))

from distlock import zk_lock
with zk_lock("key"):
    pass
labels = {{"template": "", "using": "default", "recipe": "Mutex"}}
print(REGISTRY.get_sample_value("distlock_hold_seconds_count", labels))
print([span.name for span in exporter.get_finished_spans()])
"""
    with spawn_python(code) as process:
        out, err = process.communicate(timeout=60)
    assert out.splitlines() == ["1.0", "['distlock wait', 'distlock hold']"], err
