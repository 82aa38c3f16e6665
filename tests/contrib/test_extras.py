"""Each part is imported lazily, and says what to install where its library is missing."""

from __future__ import annotations

import pytest

from tests.helpers import spawn_python

PARTS = {
    "prometheus": ("prometheus_client", "prometheus"),
    "opentelemetry": ("opentelemetry", "otel"),
    "health_check": ("health_check", "health"),
    "rest_framework": ("rest_framework", "drf"),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_missing_library_is_said_with_what_to_type(part: str) -> None:
    library, extra = PARTS[part]
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
    assert f'pip install "django-distlock[{extra}]"' in out, err
    assert library in out


@pytest.mark.parametrize(
    "config", ["prometheus.PrometheusConfig", "opentelemetry.OpenTelemetryConfig"]
)
def test_an_app_whose_library_is_missing_says_so_at_the_start(config: str) -> None:
    library, extra = PARTS[config.partition(".")[0]]
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
    assert f'pip install "django-distlock[{extra}]"' in err.splitlines()[-1]


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
