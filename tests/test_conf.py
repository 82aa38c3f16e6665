"""The setting ``DISTLOCK``: read when needed, refused with a hint, and silent about secrets."""

from __future__ import annotations

import math
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.mail import get_connection
from django.test import override_settings
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st
from kazoo.hosts import collect_hosts
from kazoo.security import make_digest_acl
from pytest_django import Settings

from distlock.conf import Configuration, configuration, seconds
from distlock.conf.rules import problems
from distlock.engine.zookeeper.settings import is_ensemble

GOOD_HOSTS = [
    "127.0.0.1",
    "127.0.0.1:2181",
    "zk1.example.org:2181",
    "zk_1:2181,zk-2:2182,zk3",
    " zk1:2181 , zk2:2181\n",
    "[::1]",
    "[::1]:2181",
    "[fe80::1]:2181,127.0.0.1:2182",
    "zk1:2181/apps/shop",
    "zk1:2181,zk2:2181/apps",
    "zk1:2181/",
    ["zk1:2181", "zk2:2181"],
    ("zk1:2181",),
]
BAD_HOSTS = [
    "",
    " ",
    ",",
    "zk1,",
    ",zk1",
    "zk1:",
    "zk1:port",
    "zk1:0",
    "zk1:65536",
    "zk1:999999",
    "zk1:-1",
    "zk1:2181:2181",
    "zk1:2181;zk2:2181",
    "zk1 zk2",
    "::1",
    "[::1",
    "[::1]2181",
    "[::1]:0",
    "[:::]:2181",
    "[1.2.3]:2181",
    "zk1:\N{ARABIC-INDIC DIGIT TWO}181",
    "zk\N{LATIN SMALL LETTER E WITH ACUTE}:2181",
    "http://zk1:2181",
    "user:password@zk1:2181",
    "/apps",
    "zk1:2181//apps",
    "zk1:2181/apps/",
    "zk1:2181/../apps",
    "zk1:2181/./apps",
    "zk1\n:2181",
    "zk1:2181\0",
    [],
    ["zk1:2181", 5],
    None,
    2181,
    b"zk1:2181",
    {"zk1": 2181},
]


@pytest.mark.parametrize("hosts", GOOD_HOSTS)
def test_hosts_that_parse_are_accepted_and_understood_by_kazoo(
    hosts: Any, settings: Settings
) -> None:
    settings.DISTLOCK = {"default": {"HOSTS": hosts}}
    assert collect_hosts(configuration().hosts)[0]


@pytest.mark.parametrize("hosts", BAD_HOSTS, ids=ascii)
def test_hosts_that_do_not_parse_are_refused_with_an_example(
    hosts: Any, settings: Settings
) -> None:
    settings.DISTLOCK = {"default": {"HOSTS": hosts}}
    with pytest.raises(ImproperlyConfigured, match=r"'HOSTS'.*zk1:2181,zk2:2181"):
        configuration()


#: Like host names, with what does not belong there.
names = st.text(alphabet="a1.-_[]:@ %\n\N{ARABIC-INDIC DIGIT TWO}", min_size=1, max_size=6)
addresses = names | st.ip_addresses().map(str) | st.ip_addresses(v=6).map("[{}]".format)
servers = st.builds("{}{}".format, addresses, st.sampled_from(["", ":", ":2181", ":0", " ", "/a"]))


@given(st.lists(servers, min_size=1, max_size=3).map(",".join))
@settings_of_hypothesis(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
def test_kazoo_understands_every_hosts_that_is_accepted(hosts: str) -> None:
    assume(is_ensemble(hosts))
    with override_settings(DISTLOCK={"default": {"HOSTS": hosts}}):
        servers, _ = collect_hosts(configuration().hosts)
    assert all(host and 0 < port < 65536 for host, port in servers)


def test_without_the_setting_there_are_defaults(settings: Settings) -> None:
    del settings.DISTLOCK
    assert configuration() == Configuration()
    assert configuration().hosts == "127.0.0.1:2181"
    assert configuration().timeout == 5
    assert configuration().in_transaction == "raise"


def test_every_setting_arrives(settings: Settings) -> None:
    acl = [make_digest_acl("shop", "x", all=True)]
    settings.DISTLOCK = {
        "default": {},
        "inventory": {
            "HOSTS": ["zk1:2181", "zk2:2182"],
            "NAMESPACE": "/shop/locks/",
            "TIMEOUT": timedelta(seconds=2),
            "SESSION_TIMEOUT": 20,
            "CONNECT_TIMEOUT": 0.5,
            "AUTH": [["digest", "shop:x"]],
            "ACL": acl,
            "TLS": {"ca": "/ca.pem", "verify": True},
            "IN_TRANSACTION": "allow",
            "BUSY_STATUS": 409,
            "RETRY_AFTER": timedelta(seconds=3),
            "NODE_DATA": "owner",
            "DEADLOCK_AFTER": timedelta(seconds=7),
            "HISTORY": 1_000_000,
            "HISTORY_SLOW": timedelta(milliseconds=500),
            "KEY_PREFIX": "shop",
        },
    }
    assert configuration("inventory") == Configuration(
        alias="inventory",
        hosts="zk1:2181,zk2:2182",
        namespace="/shop/locks",
        timeout=2.0,
        session_timeout=20,
        connect_timeout=0.5,
        auth=(("digest", "shop:x"),),
        acl=acl,
        tls={"ca": "/ca.pem", "verify": True},
        in_transaction="allow",
        busy_status=409,
        retry_after=3.0,
        node_data="owner",
        deadlock_after=7.0,
        history=1_000_000,
        history_slow=0.5,
        key_prefix="shop",
    )


def test_no_setting_is_without_a_rule() -> None:
    names = {field.name.upper() for field in fields(Configuration)} - {"ALIAS"}
    found = [problem.msg for problem in problems("default", dict.fromkeys(names, object()))]
    assert sorted(message.split("'")[3] for message in found) == sorted(names)


def test_deadlocks_are_looked_for_before_a_default_wait_ends_or_not_at_all(
    settings: Settings,
) -> None:
    settings.DISTLOCK = {"default": {}, "other": {"DEADLOCK_AFTER": None}}
    after, timeout = configuration().deadlock_after, configuration().timeout
    assert after
    assert timeout
    assert after < timeout
    assert configuration("other").deadlock_after is None


BAD_VALUES: dict[str, list[Any]] = {
    "NAMESPACE": [None, "", "/", "//", "locks", "/a//b", "/a b", "/..", "/a/../b", "/zookeeper", 5],
    "TIMEOUT": [0, -1, math.nan, math.inf, "5", True, timedelta(0), [5]],
    "SESSION_TIMEOUT": [None, 0, -1, math.nan, math.inf, "10", False],
    "CONNECT_TIMEOUT": [None, 0, -0.5, math.nan, "3"],
    "AUTH": ["digest", [("digest",)], [("digest", "")], [("digest", None)], ["ab"], 5],
    "ACL": [
        "world",
        "",
        [],
        None,
        5,
        {},
        {"app": [("sasl", "shop")]},
        {"app": [("sasl", "shop")], "operators": []},
        {"app": [("sasl", "shop")], "operators": [("auth", "")]},
        {"app": [("sasl", "shop")], "operators": [("digest", "ops:a-password")]},
        {"app": [("sasl", "shop")], "operators": [("sasl", "ops")], "auditors": [("sasl", "x")]},
    ],
    "TLS": ["ca.pem", True, {"CA": "x"}, {"ca_certs": "x"}, []],
    "IN_TRANSACTION": ["ignore", None, True, ""],
    "BUSY_STATUS": [200, 399, 600, "423", None, 423.0],
    "RETRY_AFTER": [0, -1, None, "1", math.nan],
    "HISTORY": [None, -1, 0.5, "100", True, 1_000_001],
    "HISTORY_SLOW": [None, -1, math.nan, math.inf, "1", False],
    "DEADLOCK_AFTER": [0, -1, math.nan, math.inf, "5", False, timedelta(0)],
    "HELD_LONG": [0, -1, math.nan, math.inf, "5", False, timedelta(0)],
    "WAITED_LONG": [0, -1, math.nan, math.inf, "usual", False, timedelta(0)],
    "NODE_DATA": ["none", None, "", True],
    "KEY_PREFIX": ["", None, "a/b", "a:", "%", 5, str, "no.such.module", "math.pi"],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD_VALUES.items() for value in values]
)
def test_a_wrong_value_is_one_problem_that_names_it(name: str, value: Any) -> None:
    (problem,) = problems("default", {name: value})
    assert f"DISTLOCK['default']['{name}']" in problem.msg
    assert str(problem.hint).startswith("Write ")


@pytest.mark.parametrize("value", [0.1, 0.999, timedelta(milliseconds=100)])
def test_a_session_timeout_that_no_server_grants_is_refused_with_the_reason(
    value: Any, settings: Settings
) -> None:
    settings.DISTLOCK = {"default": {"SESSION_TIMEOUT": value}}
    with pytest.raises(ImproperlyConfigured, match=r"from 1 up.*two ticks.*would lose all locks"):
        configuration()


@pytest.mark.parametrize("value", [1, timedelta(seconds=1), 40])
def test_a_session_timeout_of_a_second_is_enough(value: Any) -> None:
    assert not list(problems("default", {"SESSION_TIMEOUT": value}))


@pytest.mark.parametrize(
    ("name", "meant"),
    [("HOST", "HOSTS"), ("hosts", "HOSTS"), ("NAME_SPACE", "NAMESPACE"), ("ACLS", "ACL")],
)
def test_an_unknown_setting_is_told_what_was_meant(name: str, meant: str) -> None:
    (problem,) = problems("default", {name: 1})
    assert repr(name) in problem.msg
    assert problem.hint == f"Did you mean {meant!r}?"


@pytest.mark.parametrize("name", ["FLAVOUR", "", 5, None])
def test_a_setting_like_no_other_is_told_all_there_are(name: Any) -> None:
    (problem,) = problems("default", {name: 1})
    assert "HOSTS, NAMESPACE, TIMEOUT" in str(problem.hint)


@pytest.mark.parametrize("options", [None, "127.0.0.1:2181", [], 5])
def test_an_alias_is_a_dict(options: Any) -> None:
    (problem,) = problems("default", options)
    assert problem.msg == "DISTLOCK['default'] is not a dict."


def test_the_embedded_server_is_refused_in_production(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("django.test.utils._TestState.saved_data")
    settings.DISTLOCK = {"default": {"HOSTS": "embedded"}}
    get_connection("django.core.mail.backends.locmem.EmailBackend")  # makes an outbox, as in tests
    with pytest.raises(ImproperlyConfigured, match=r"DEBUG is False.*Name the servers"):
        configuration()
    settings.DEBUG = True
    assert configuration().hosts == "embedded"


@pytest.mark.parametrize(
    "options", [{"TLS": {}}, {"AUTH": [("digest", "a:b"), ("sasl", "user:password")]}]
)
def test_the_embedded_server_has_no_tls_and_no_sasl(options: dict[str, Any]) -> None:
    (problem,) = problems("default", {"HOSTS": " embedded", **options})
    assert "TLS or SASL" in problem.msg


def test_a_host_may_have_the_name_of_the_embedded_server(settings: Settings) -> None:
    settings.DISTLOCK = {"default": {"HOSTS": "embedded:2181"}}
    assert configuration().hosts == "embedded:2181"


def test_an_unknown_alias_is_told_the_known_ones(settings: Settings) -> None:
    settings.DISTLOCK = {"default": {}, "inventory": {}}
    with pytest.raises(ImproperlyConfigured, match=r"no alias 'stock'.*'default', 'inventory'"):
        configuration("stock")


@pytest.mark.parametrize("aliases", [None, [], "127.0.0.1"])
def test_a_setting_that_is_no_dict_has_no_alias(aliases: Any, settings: Settings) -> None:
    settings.DISTLOCK = aliases
    with pytest.raises(ImproperlyConfigured, match="no alias 'default'"):
        configuration()


def test_a_changed_setting_is_read_again(settings: Settings) -> None:
    settings.DISTLOCK = {"default": {"TIMEOUT": 1}}
    assert configuration().timeout == 1
    with override_settings(DISTLOCK={"default": {"TIMEOUT": 2}}):
        assert configuration().timeout == 2
    assert configuration().timeout == 1


def test_an_error_is_not_remembered(settings: Settings) -> None:
    settings.DISTLOCK = {"default": {"TIMEOUT": -1}}
    with pytest.raises(ImproperlyConfigured):
        configuration()
    settings.DISTLOCK = {"default": {"TIMEOUT": 1}}
    assert configuration().timeout == 1


@pytest.mark.parametrize(
    ("timeout", "expected"),
    [(0, 0.0), (2, 2.0), (0.5, 0.5), (timedelta(minutes=1), 60.0), (None, None), (math.inf, None)],
)
def test_a_timeout_is_seconds_or_a_timedelta_or_for_ever(timeout: Any, expected: Any) -> None:
    assert seconds(timeout) == expected


@pytest.mark.parametrize("timeout", [-1, -0.001, math.nan, -math.inf, timedelta(seconds=-1)])
def test_a_negative_timeout_is_refused(timeout: Any) -> None:
    with pytest.raises(ValueError, match="0 tries once, None waits for ever"):
        seconds(timeout)


@pytest.mark.parametrize("timeout", ["5", True, [], object(), b"5"])
def test_a_timeout_of_another_type_is_refused(timeout: Any) -> None:
    with pytest.raises(TypeError, match="number of seconds from 0 up, a timedelta, or None"):
        seconds(timeout)
