"""The system checks: each says what is wrong once, is quiet otherwise, and none of them connects.

uWSGI without threads, no ACL, no TLS; and no check opens a connection.
"""

from __future__ import annotations

import socket
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pytest_django import Settings

from distlock.checks import MIDDLEWARE
from distlock.session import registry
from tests.checks.tools import found, messages


def test_right_settings_are_quiet() -> None:
    assert found(deploy=True) == []


def test_no_settings_at_all_are_quiet(settings: Settings) -> None:
    del settings.DISTLOCK
    assert found() == []


@pytest.mark.parametrize("value", [None, [], "127.0.0.1", {}, {"inventory": {}}])
def test_e001_no_dict_with_a_default_alias(value: Any, settings: Settings) -> None:
    settings.DISTLOCK = value
    (message,) = messages()
    assert message.id == "distlock.E001"
    assert 'DISTLOCK = {"default": {"HOSTS": ' in str(message.hint)


def test_e002_a_wrong_setting_of_any_alias(settings: Settings) -> None:
    settings.DISTLOCK = {"default": {"HOSTS": ""}, "inventory": {"HOTS": "zk1", "TIMEOUT": "5"}}
    said = messages()
    assert [message.id for message in said] == ["distlock.E002"] * 3
    assert said[0].msg == "DISTLOCK['default']['HOSTS'] is not valid: ''."
    assert (said[0].hint or "").startswith('Write text such as "zk1:2181,zk2:2181,zk3:2181", or')
    assert said[1].hint == "Did you mean 'HOSTS'?"
    assert "DISTLOCK['inventory']['TIMEOUT']" in said[2].msg


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ({"HOSTS": "redis://127.0.0.1:6379/0"}, "pip install 'redis[hiredis]'"),
        ({"AUTH": [("sasl", "user:password")]}, "pip install pure-sasl"),
    ],
)
def test_e002_a_missing_package_is_named_as_pip_knows_it(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    command: str,
) -> None:
    for engine in ("redis", "zookeeper"):
        monkeypatch.setattr(f"distlock.engine.{engine}.settings.find_spec", lambda _: None)
    settings.DISTLOCK = {"default": options}
    (message,) = messages()
    assert message.id == "distlock.E002"
    assert command in str(message.hint)


def test_e002_a_wrong_setting_shows_no_password(settings: Settings) -> None:
    wrong = {"NAMESPACE": "redis://:s3cret@h/0", "TIMEOUT": "shop:s3cret@h"}
    settings.DISTLOCK = {"default": {"HOSTS": "zk1", **wrong}}
    said = messages()
    assert len(said) == 2
    assert "s3cret" not in str(said)


def test_w001_the_middleware_is_missing(right: Settings) -> None:
    right.MIDDLEWARE = []
    (message,) = messages()
    assert message.id == "distlock.W001"
    assert MIDDLEWARE in message.msg
    assert "423" in str(message.hint)


def test_w001_is_quiet_for_a_project_without_urls(right: Settings) -> None:
    right.MIDDLEWARE = []
    right.ROOT_URLCONF = None
    assert found() == []


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({}, ["distlock.E005"]),
        ({"workers": b"4"}, ["distlock.E005"]),
        ({"enable-threads": b"true"}, []),
        ({"enable-threads": True}, []),
        ({"threads": b"2"}, []),
    ],
)
def test_e005_uwsgi_without_threads(
    options: dict[str, Any], ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace(opt=options))
    assert found() == ids


def test_e007_the_embedded_server_in_production(
    right: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    right.DISTLOCK = {"default": {}, "inventory": {"HOSTS": ["embedded"]}}
    assert found() == []  # tests run without DEBUG
    monkeypatch.delattr("django.test.utils._TestState.saved_data")
    right.DEBUG = True
    assert found() == []
    right.DEBUG = False
    (message,) = messages()
    assert message.id == "distlock.E007"
    assert "'inventory'" in message.msg
    assert "for development: one process, nothing on disk, no replication" in message.msg


def test_deployment_warnings_come_for_each_alias(right: Settings) -> None:
    right.DISTLOCK = {"default": {}, "inventory": {}}
    said = messages(deploy=True)
    assert [message.id for message in said] == ["distlock.W003", "distlock.W004"] * 2
    assert [("'inventory'" in message.msg) for message in said] == [False, False, True, True]


@pytest.mark.parametrize("value", [None, [], {"default": None}])
def test_the_deployment_check_survives_settings_of_a_wrong_shape(
    value: Any, right: Settings
) -> None:
    right.DISTLOCK = value
    assert [i for i in found(deploy=True) if str(i).startswith("distlock.W")] == []


def test_every_message_says_what_to_do(right: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace(opt={}))
    right.DISTLOCK = {"default": {"HOTS": "zk1"}}
    right.MIDDLEWARE = []
    said = messages(deploy=True)
    assert len(said) == 5
    assert all(message.hint for message in said)


def test_no_check_connects(right: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("A check has opened a connection.")

    registry.close_sessions()
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(registry, "Session", refuse)
    right.DISTLOCK = {"default": {}}
    assert found(deploy=True)
    assert not registry.sessions()
