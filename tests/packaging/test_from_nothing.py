"""A new user's way from nothing to a locked view, and what happens when a step is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit.embedded import folder_in, kill, pid_in
from tests.kit.helpers import eventually
from tests.packaging.environment import PATIENCE
from tests.packaging.newcomer import Newcomer, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.packaging.environment import Environment

CHECK = "python manage.py check"
DOCTOR = "python manage.py distlock doctor"
APP = 'INSTALLED_APPS += ["distlock"]\n'
MIDDLEWARE = 'MIDDLEWARE = ["distlock.middleware.DistlockMiddleware", *MIDDLEWARE]\n'


@pytest.fixture
def newcomer(installed: Environment, tmp_path: Path) -> Iterator[Newcomer]:
    with Newcomer(installed, tmp_path) as newcomer:
        yield newcomer


@pytest.fixture
def project(newcomer: Newcomer) -> Newcomer:
    """The project that the page describes; nothing runs yet."""
    newcomer.type("django-admin startproject shop .")
    for block in blocks():
        if block.file:
            newcomer.write(block)
    return newcomer


@pytest.fixture
def _no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "JAVA_HOME", "ZOOKEEPER_HOME"):
        monkeypatch.setenv(name, "")


@pytest.mark.usefixtures("_no_java")
def test_what_the_page_says_leads_to_a_locked_view(newcomer: Newcomer) -> None:
    said: dict[str, str] = {}
    for block in blocks():
        if block.file:
            newcomer.write(block)
            continue
        for command in block.text.splitlines():
            if command.startswith("curl"):
                sold = eventually(lambda: _one_sold(newcomer), PATIENCE)
                assert sold == "42 is yours.\n"
            elif "pip install" not in command:  # the fixture has done it
                said[command] = newcomer.type(command)
    assert "for development: one process, nothing on disk" in " ".join(said[DOCTOR].split())
    assert said[CHECK] == "System check identified no issues (0 silenced).\n"
    assert "warning" not in said[DOCTOR]
    # Nobody has typed `migrate` yet.
    assert "distlock" in said["python manage.py runserver"].partition("unapplied migration")[2]
    assert newcomer.get("/admin/login/") == 200
    for command, seconds in newcomer.typed:
        print(f"{seconds:6.2f} s  {command}")  # noqa: T201 - pytest -s shows it
    print(f"{sum(seconds for _, seconds in newcomer.typed):6.2f} s")  # noqa: T201 - the same


def _one_sold(newcomer: Newcomer) -> str:
    """What the buyer is told who gets the lock, where the other one does not."""
    statuses, first = newcomer.buy()
    return first if statuses == [200, 423] else ""


def test_a_running_site_outlives_its_embedded_server_and_a_reload(project: Newcomer) -> None:
    project.type("python manage.py runserver")
    eventually(lambda: _one_sold(project), PATIENCE)
    kill(pid_in(folder_in(project.folder)))
    eventually(lambda: _one_sold(project), PATIENCE)
    project.edit("shop/urls.py", "is yours", "belongs to you")
    eventually(lambda: _one_sold(project) == "42 belongs to you.\n", PATIENCE)


def test_a_zookeeper_of_your_own_leads_there_too(project: Newcomer) -> None:
    use_a_zookeeper(project)
    project.type("python manage.py distlock server")
    assert "for development" not in project.type(DOCTOR)
    project.type("python manage.py runserver")
    eventually(lambda: _one_sold(project), PATIENCE)


def use_a_zookeeper(project: Newcomer) -> None:
    project.edit("shop/settings.py", '"embedded"', f'"{project.zookeeper}"')


def test_the_embedded_server_is_an_error_in_production(project: Newcomer) -> None:
    project.edit("shop/settings.py", "DEBUG = True", "DEBUG = False")
    assert "distlock.E007" in project.type(CHECK, status=1)
    said = " ".join(project.type(DOCTOR, status=1).split())
    assert "error settings: DISTLOCK['default']['HOSTS'] is 'embedded', and DEBUG is False" in said


def test_without_the_app_the_check_says_so(project: Newcomer) -> None:
    project.edit("shop/settings.py", APP, "")
    said = project.type(CHECK)
    assert 'shop/urls.py:10: RuntimeWarning: zk_locked is used, but "distlock" is not in' in said
    assert "Unknown command: 'distlock'" in project.type(DOCTOR, status=1)


@pytest.mark.parametrize(
    ("lines", "found"), [("", "distlock.W001"), (MIDDLEWARE * 2, "distlock.W002")]
)
def test_a_middleware_that_is_missing_or_there_twice_is_found(
    lines: str, found: str, project: Newcomer
) -> None:
    project.edit("shop/settings.py", MIDDLEWARE, lines)
    said = project.type(CHECK)
    assert found in said
    assert "distlock.middleware.DistlockMiddleware" in said


def test_without_the_setting_or_a_server_the_doctor_says_what_to_do(project: Newcomer) -> None:
    use_a_zookeeper(project)
    settings = project.folder / "shop/settings.py"
    down = f"{DOCTOR} --budget 1"
    said = " ".join(project.type(down, status=1).split())
    assert f"server {project.zookeeper}: cannot be reached" in said
    assert "`manage.py distlock server` runs one for development" in said
    text = settings.read_text()
    settings.write_text(text[: text.index("DISTLOCK = ")])
    assert project.type(CHECK) == "System check identified no issues (0 silenced).\n"
    with_default = project.environment.start("manage.py", *down.split()[2:], cwd=project.folder)
    said = " ".join(with_default.communicate(timeout=PATIENCE)[0].split())  # 2181 may be in use
    assert "warning settings: /distlock on 127.0.0.1:2181, since there is no DISTLOCK" in said


def test_without_a_server_the_view_answers_503(project: Newcomer) -> None:
    use_a_zookeeper(project)
    project.type("python manage.py runserver")
    assert project.get("/buy/42") == 503
