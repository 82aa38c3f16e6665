"""`manage.py distlock history`: rows of the database, as lines or JSON."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.utils.timezone import now
from pytest_django import Settings

from distlock.models import LockEvent
from tests.commands.tools import run

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def kept(settings: Settings) -> None:
    """An alias with a history, with three events of a key and one of another."""
    settings.DISTLOCK = {"default": {"HISTORY": 100}}
    for key, kind, hours in [
        ("k", "lost", 1),
        ("k", "held", 0),
        ("k", "busy", 2),
        ("x", "held", 0),
    ]:
        LockEvent.objects.create(
            using="default", key=key, name=key, kind=kind, at=now() - timedelta(hours=hours),
            waited=1.25, owner="GET /", hostname="web1", pid=7, detail="so\x1bit was",
        )  # fmt: skip


def test_the_newest_is_last() -> None:
    status, out, errors = run("history", "k")
    assert (status, errors) == (0, "")
    heading, *lines = out.splitlines()
    assert heading.split() == ["TIME", "EVENT", "WAITED", "HELD", "PROCESS", "WHO", "DETAILS"]
    assert [line.split()[3] for line in lines] == ["busy", "lost", "held"]
    assert lines[0].split()[4:] == [
        "1.2s",
        "web1:7",
        "GET",
        "/",
        "so\N{REPLACEMENT CHARACTER}it",
        "was",
    ]


def test_what_went_wrong_is_red() -> None:
    LockEvent.objects.filter(kind="lost").update(kind="broken")
    _, out, _ = run("history", "k", "--force-color")
    red = [line for line in out.splitlines()[1:] if line.startswith("\x1b[31")]
    assert [line.split()[3] for line in red] == ["broken"]


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        (["--since", "90m"], ["lost", "held"]),
        (["--since", "1.5h", "--kind", "held"], ["held"]),
        (["--kind", "lost"], ["lost"]),
    ],
)
def test_it_can_be_narrowed_and_written_as_json(options: list[str], kinds: list[str]) -> None:
    status, out, errors = run("history", "k", "-o", "json", *options)
    assert (status, errors) == (0, "")
    assert [row["kind"] for row in json.loads(out)] == kinds


def test_nothing_is_an_error_and_so_is_a_site_without_a_history(settings: Settings) -> None:
    assert run("history", "y")[0] == 1
    assert run("history", "k", "--since", "1s", "--kind", "lost")[0] == 1
    settings.DISTLOCK = {"default": {}}
    status, _, errors = run("history", "k")
    assert status == 78
    assert "set HISTORY" in errors


@pytest.mark.parametrize("age", ["2", "h", "-", "1w", "1e999d"])
def test_an_age_has_a_unit(age: str) -> None:
    status, _, errors = run("history", "k", f"--since={age}")
    assert status == 1  # Django's own for wrong usage in a call
    assert "no age such as 90s" in errors
