"""No log line can be forged: no control character of a path, key, label or node reaches one."""

from __future__ import annotations

import ast
import logging
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import re_path
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

import distlock
from distlock import DistlockError, LockBusy, exceptions, zk_lock
from distlock.checks import MIDDLEWARE
from distlock.logs.loggers import safe
from distlock.owner.owner import label

FORGED = "x\r\nERROR forged \x1b[2J\u202e\u2028\x85"
_LOGGERS = {"getLogger", "get_logger", "get_task_logger"}
_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


class Call(NamedTuple):
    """One call of a logger in the package; `message` is no text where it is an expression."""

    where: str
    message: Any
    arguments: int


def _modules() -> list[Path]:
    return [*Path(distlock.__file__).parent.rglob("*.py")]


def _calls(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


def _messages(node: ast.expr) -> list[object]:
    if isinstance(node, ast.IfExp):  # one of two messages
        return [*_messages(node.body), *_messages(node.orelse)]
    return [getattr(node, "value", None)]


def _logger_calls() -> list[Call]:
    return [
        Call(f"{path.name}:{call.lineno}", message, len(call.args) - 1)
        for path in _modules()
        for call in _calls(path)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in _METHODS
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in {"logger", "_logger", "log", "logging"}
        for message in _messages(call.args[0])
    ]


CALLS = _logger_calls()


def test_the_calls_are_found() -> None:
    assert len(CALLS) >= 25
    assert {call.where.partition(":")[0] for call in CALLS} >= {"runs.py", "session.py"}


def test_every_logger_is_safe() -> None:
    """Its filter is not asked for the records of other loggers."""
    for path in _modules():
        calls = _calls(path)
        wrapped = {
            id(call.args[0])
            for call in calls
            if isinstance(call.func, ast.Name) and call.func.id == "safe"
        }
        for call in calls:
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            assert name not in _LOGGERS or id(call) in wrapped, f"{path.name}:{call.lineno}"


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.where)
def test_what_varies_in_a_message_is_an_argument(call: Call) -> None:
    """An f-string would pass the filter by."""
    assert isinstance(call.message, str)
    assert call.message.isprintable()


class Hostile:
    """An object of somebody's whose text is not ours."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


hostile_texts = st.text() | st.just(FORGED) | st.just(FORGED * 1000)
hostile = hostile_texts | hostile_texts.map(Hostile) | hostile_texts.map(ValueError)
lines = logging.Formatter("%(levelname)s %(message)s")


@given(st.sampled_from(CALLS), st.lists(hostile, min_size=9, max_size=9))
def test_no_argument_breaks_a_line(call: Call, values: list[Any]) -> None:
    formats = re.findall(r"%[-0-9.]*([a-z])", call.message.replace("%%", ""))
    assert len(formats) == call.arguments
    args = tuple(value if kind in "rs" else 7 for kind, value in zip(formats, values, strict=False))
    logger = safe(logging.getLogger("tests.log_lines"))
    record = logger.makeRecord("distlock", logging.ERROR, "", 0, call.message, args, None)
    assert logger.filter(record)
    line = lines.format(record)
    assert line.isprintable()
    assert len(line) < 1000 + 2100 * call.arguments


# --- the whole way ----------------------------------------------------------------------------


def forget(request: HttpRequest, **captured: str) -> HttpResponse:  # noqa: ARG001
    zk_lock(captured["key"]).acquire()
    return HttpResponse("forgotten")


urlpatterns = [re_path("(?s)^forget/(?P<key>.*)$", forget)]


@pytest.mark.parametrize("setting", ["route", "path"])
def test_a_path_cannot_forge_a_line(
    distlock_settings: Settings, caplog: pytest.LogCaptureFixture, setting: str
) -> None:
    distlock_settings.DISTLOCK["default"]["LABEL"] = setting
    distlock_settings.ROOT_URLCONF = __name__
    distlock_settings.MIDDLEWARE = [MIDDLEWARE]
    Client().get("/forget/x%0d%0aERROR%20forged%1b[2J")
    (record,) = [record for record in caplog.records if "left the lock" in record.msg]
    assert lines.format(record).isprintable()


@pytest.mark.usefixtures("distlock_settings")
def test_a_key_and_a_holder_cannot_forge_a_line_or_field(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from tests.kit.tools import Owner  # noqa: PLC0415 - a thread that holds

    def hold() -> None:
        with label(FORGED):
            zk_lock(FORGED).acquire()

    with Owner() as owner, caplog.at_level(logging.INFO, "distlock"):
        owner.now(hold)
        with pytest.raises(LockBusy) as refused, zk_lock(FORGED, timeout=0):
            pass
        owner.now(zk_lock(FORGED).release)
    assert str(refused.value).isprintable()
    assert refused.value.key == FORGED
    records = [record for record in caplog.records if record.name.startswith("distlock")]
    assert records
    for record in records:
        assert lines.format(record).isprintable()
        texts = [text for text in vars(record).values() if isinstance(text, str)]
        assert all(text.isprintable() for text in texts)


def test_the_message_of_every_exception_is_printable_and_short() -> None:
    classes = [
        one
        for one in vars(exceptions).values()
        if isinstance(one, type) and issubclass(one, DistlockError)
    ]
    assert len(classes) >= 10
    for one in classes:
        message = str(one(FORGED * 100_000))
        assert message.isprintable()
        assert len(message) < 5000
