"""The settings of Redis: mistakes are found without a server, and no password is shown."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings

from distlock.conf import configuration
from distlock.engine.redis.address import address
from tests.checks.tools import found, messages

SECRET = "s3cr3t"


@pytest.fixture(autouse=True)
def _no_other_checks(settings: Settings) -> None:
    """Only those of the setting have something to say."""
    settings.MIDDLEWARE = ["distlock.middleware.DistlockMiddleware"]


def set_to(settings: Settings, hosts: str, **options: Any) -> None:
    settings.DISTLOCK = {"default": {"HOSTS": hosts, **options}}


@pytest.mark.parametrize(
    "hosts",
    [
        "redis://h",
        f"redis://u:{SECRET}@h:6379/0",
        "redis:///1",
        "rediss://[::1]:6380/0?ssl_ca_certs=/path",
        "unix:///run/redis.sock?db=2",
        "redis+sentinel://s1:26379,s2/service/0",
        f"rediss+sentinel://u:{SECRET}@s1/service?ssl_cert_reqs=none&db=1",
        f"redis+sentinel://s1/service?sentinel_username=u&sentinel_password={SECRET}",
        "rediss+sentinel://s1/service?sentinel_ssl=false",
    ],
)
def test_urls_of_redis_are_accepted(hosts: str, settings: Settings) -> None:
    set_to(settings, hosts, REPLICAS=1)
    assert configuration().hosts == hosts
    assert found() == []
    assert SECRET not in address(hosts).shown


@pytest.mark.parametrize(
    ("hosts", "mistake"),
    [
        (f"http://u:{SECRET}@h", "is no URL of Redis"),
        (f"redis://u:{SECRET}@h/abc", "is not of the form redis://"),
        (f"redis://u:{SECRET}@h:x/0", "is not of the form redis://"),
        ("redis://h:0", "is not of the form redis://"),
        ("redis://h:65536", "is not of the form redis://"),
        (f"redis://u:{SECRET}@a:1,b:2/0", "is not of the form redis://"),
        (f"redis://u:{SECRET}@[h/0", "is not of the form redis://"),
        (f"redis://u:x#{SECRET}@h/0", "is not of the form redis://"),
        (f"redis://u:x/{SECRET}@h/0", "is not of the form redis://"),
        ("unix://", "is not of the form unix:///path"),
        ("unix:///run/redis.sock?db=x", "has no number as database"),
        ("redis+sentinel://s1,s2", "is not of the form redis+sentinel://host:26379,"),
        ("redis+sentinel://s1/", "is not of the form redis+sentinel://"),
        (f"redis+sentinel://u:{SECRET}@s1/service/x", "is not of the form redis+sentinel://"),
        ("redis+sentinel://s1:x/service", "is not of the form redis+sentinel://"),
        ("redis://h?bd=1", "has an unknown option 'bd' after the ?; known are db, "),
        ("redis://h?ssl_ca_certs=/path", "has an unknown option 'ssl_ca_certs'"),
        ("rediss://h?ssl_ca_cert=/path", "has an unknown option 'ssl_ca_cert'"),
        ("unix:///socket?socket_timeout=1", "has an unknown option 'socket_timeout'"),
        ("redis+sentinel://s1/service?bd=1", "has an unknown option 'bd'"),
        ("redis+sentinel://s1/service?sentinel_ssl=true", "has an unknown option 'sentinel_ssl'"),
        ("redis://h?sentinel_username=u", "has an unknown option 'sentinel_username'"),
        ("rediss+sentinel://s1/service?sentinel_ssl=no", "has a wrong value for sentinel_ssl"),
        (f"redis://u:x?{SECRET}@h/0", "is not of the form redis://"),
        (f"unix:///socket?{SECRET}@h/0", "has an unknown option after the ?"),
        ("rediss://h?ssl_cert_reqs=yes", "has a wrong value for ssl_cert_reqs; right are"),
        ("rediss://h?ssl_check_hostname=no", "has a wrong value for ssl_check_hostname"),
        ("redis+sentinel://s1,,s2/service", "is not of the form redis+sentinel://"),
    ],
)
def test_a_mistake_in_a_url_is_named(hosts: str, mistake: str, settings: Settings) -> None:
    set_to(settings, hosts, REPLICAS=1)
    (said,) = messages()
    assert (said.id, said.msg.startswith(f"DISTLOCK['default']['HOSTS'] {mistake}")) == (
        "distlock.E002",
        True,
    )
    assert '"redis+sentinel://host:26379,host:26379/service/0"' in (said.hint or "")
    with pytest.raises(ImproperlyConfigured) as refused:
        configuration()
    assert SECRET not in f"{said}{refused.value}"


@pytest.mark.parametrize(
    ("hosts", "option", "value", "advice"),
    [
        ("redis://h", "AUTH", [("digest", f"user:{SECRET}")], "into HOSTS"),
        ("redis://h", "ACL", "creator", "no ACL of single locks"),
        ("redis://h", "TLS", {}, "rediss://"),
        ("redis://h", "STRICT", True, "proves each session"),
        ("zk1:2181", "REPLICAS", 2, "A majority"),
    ],
)
def test_what_the_servers_do_not_know_is_refused(
    hosts: str, option: str, value: Any, advice: str, settings: Settings
) -> None:
    set_to(settings, hosts, **{option: value})
    (said,) = messages()
    server = "Redis" if "redis" in hosts else "ZooKeeper"
    assert (said.id, said.msg) == (
        "distlock.E002",
        f"DISTLOCK['default'][{option!r}] means nothing to {server}.",
    )
    assert advice in (said.hint or "")
    with pytest.raises(ImproperlyConfigured, match="means nothing to"):
        configuration()


def test_options_without_effect_are_accepted(settings: Settings) -> None:
    set_to(settings, "redis://h", AUTH=None, ACL="open", TLS=None, STRICT=False)
    assert found() == []
    set_to(settings, "zk1", REPLICAS=0)
    assert found() == []


def test_sentinel_without_replicas_is_a_warning(settings: Settings) -> None:
    set_to(settings, "redis+sentinel://s1/service")
    assert found() == ["distlock.W006"]
    set_to(settings, "redis+sentinel://s1/service", REPLICAS=1)
    assert found() == []


@pytest.mark.parametrize(
    ("hosts", "ids"),
    [
        ("redis://h", ["distlock.W004"]),
        ("rediss://h", []),
        ("unix:///run/redis.sock", []),
        ("redis+sentinel://s1/service", ["distlock.W004"]),
        ("rediss+sentinel://s1/service", []),
    ],
)
def test_a_connection_in_clear_is_a_warning_of_a_deployment(
    hosts: str, ids: list[str], settings: Settings
) -> None:
    set_to(settings, hosts, REPLICAS=1)
    assert found(deploy=True) == ids
