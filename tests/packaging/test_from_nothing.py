"""A new user's way from nothing to a locked view, and what happens when a step is left out."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.kit.embedded import folder_in, kill, pid_in
from tests.kit.helpers import eventually
from tests.kit.services import Postgres
from tests.packaging.conftest import Built
from tests.packaging.environment import PATIENCE, Environment
from tests.packaging.pages import FROM_NOTHING, blocks
from tests.packaging.typist import Typist

pytestmark = pytest.mark.deep

CHECK = "python manage.py check"
DOCTOR = "python manage.py distlock doctor"
APP = 'INSTALLED_APPS += ["distlock"]\n'
SITE = "http://127.0.0.1:8000"
VENV = "python3 -m venv .venv"
INSTALL = "python -m pip install /path/to/the/clone"
EXTRA = "python -m pip install '/path/to/the/clone[postgresql]'"
TEST_OF_A_LOCK = """
from django.test import TestCase
from distlock import zk_lock

class LockTest(TestCase):
    def test_it_locks(self):
        with zk_lock("key") as hold:
            assert hold.token
"""
#: Another database than that of the rest of the page.
ON_POSTGRESQL = list(blocks(FROM_NOTHING, "On PostgreSQL"))
PAGE = [block for block in blocks(FROM_NOTHING) if block not in ON_POSTGRESQL]


@pytest.fixture
def newcomer(installed: Environment, tmp_path: Path) -> Iterator[Typist]:
    (tmp_path / ".venv").symlink_to(installed.folder)
    with Typist(tmp_path, installed=(VENV, INSTALL)) as newcomer:
        yield newcomer


@pytest.fixture
def project(newcomer: Typist) -> Typist:
    """The project that the page describes; nothing runs yet."""
    return _started(newcomer)


def _started(newcomer: Typist) -> Typist:
    newcomer.run("django-admin startproject shop .")
    for block in PAGE:
        if block.file:
            newcomer.type(block)
    return newcomer


@pytest.fixture
def _no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "JAVA_HOME", "ZOOKEEPER_HOME"):
        monkeypatch.setenv(name, "")


@pytest.mark.usefixtures("_no_java")
def test_what_the_page_says_leads_to_a_locked_view(newcomer: Typist) -> None:
    said: dict[str, str] = {}
    for block in PAGE:
        if block.file:
            newcomer.type(block)
            continue
        for command in block.text.splitlines():
            if command.startswith("curl"):
                assert eventually(lambda: _one_sold(newcomer), PATIENCE) == "42 is yours.\n"
            else:
                said[command] = newcomer.run(command)
    assert INSTALL in said
    assert "for development: one process, nothing on disk" in " ".join(said[DOCTOR].split())
    assert said[CHECK] == "System check identified no issues (0 silenced).\n"
    assert "warning" not in said[DOCTOR]
    # Nobody has typed `migrate` yet.
    assert "distlock" in said["python manage.py runserver"].partition("unapplied migration")[2]
    assert _get(newcomer, f"{SITE}/admin/login/")[0] == 200
    _tell(newcomer)


def _tell(newcomer: Typist) -> None:
    for command, seconds in newcomer.typed:
        print(f"{seconds:6.2f} s  {command}")  # noqa: T201 - pytest -s shows it
    print(f"{sum(seconds for _, seconds in newcomer.typed):6.2f} s")  # noqa: T201 - the same


def test_the_same_settings_keep_the_locks_in_postgresql(
    built: Built, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Environment(tmp_path / ".venv", built.wheel, extras=["postgresql"])
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGPORT", str(postgres.port))
    monkeypatch.setenv("PGUSER", "postgres")
    with Typist(tmp_path, installed=(EXTRA,)) as newcomer:
        _started(newcomer)
        for block in ON_POSTGRESQL:
            newcomer.type(block)
        (tmp_path / "shop" / "tests.py").write_text(TEST_OF_A_LOCK)
        assert "\nOK\n" in newcomer.run("python manage.py test")
        newcomer.run("python manage.py runserver")
        assert eventually(lambda: _one_sold(newcomer), PATIENCE) == "42 is yours.\n"
        assert "tells of releases (LISTEN)" in newcomer.run(DOCTOR)
        assert EXTRA in [command for command, _ in newcomer.typed]
        _tell(newcomer)


def _one_sold(newcomer: Typist) -> str:
    """What the buyer is told who gets the lock, where the other one does not."""
    (url,) = re.findall(r"(?m)^curl .*?(http\S+)$", FROM_NOTHING.read_text(encoding="utf-8"))
    answers: list[tuple[int, str]] = []
    buyers = [
        threading.Thread(target=lambda: answers.append(_get(newcomer, url)), daemon=True)
        for _ in range(2)
    ]
    for buyer in buyers:
        buyer.start()
    for buyer in buyers:
        buyer.join(PATIENCE)
    (first, said), (second, _) = sorted(answers)
    return said if (first, second) == (200, 423) else ""


def _get(newcomer: Typist, url: str) -> tuple[int, str]:
    """Return status and text of a page of the site, which the page calls by its usual address."""
    assert url.startswith(SITE)
    url = url.replace(SITE, f"http://{newcomer.site}")
    try:
        with urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310 - it is http
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:  # runserver reloads
        return 0, ""


def test_a_running_site_outlives_its_embedded_server_and_a_reload(project: Typist) -> None:
    project.run("python manage.py runserver")
    eventually(lambda: _one_sold(project), PATIENCE)
    kill(pid_in(folder_in(project.folder)))
    eventually(lambda: _one_sold(project), PATIENCE)
    project.edit("shop/urls.py", "is yours", "belongs to you")
    eventually(lambda: _one_sold(project) == "42 belongs to you.\n", PATIENCE)


def test_without_the_app_the_check_says_so(project: Typist) -> None:
    project.edit("shop/settings.py", APP, "")
    said = project.run(CHECK)
    assert 'shop/urls.py:10: RuntimeWarning: zk_locked is used, but "distlock" is not in' in said
    assert "Unknown command: 'distlock'" in project.run(DOCTOR, status=1)
