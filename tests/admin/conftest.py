"""Fixtures of the admin page's tests: the shop's site, operators, and those of the inspection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import translation
from pytest_django import Settings

from example_project import settings as example_settings
from tests.admin.tools import MakeOperator


@pytest.fixture(autouse=True)
def _no_clock_is_known(no_server_time: None) -> None:
    """A test begins without what an earlier one has learnt of the server's time."""


@pytest.fixture(autouse=True)
def _site(settings: Settings, db: None) -> Iterator[None]:  # noqa: ARG001 - operators are in it
    """The site as the example project sets it up, and nothing left of the test before."""
    for name in ("ROOT_URLCONF", "MIDDLEWARE", "TEMPLATES", "STATIC_URL"):
        setattr(settings, name, getattr(example_settings, name))
    with translation.override("en"):  # LocaleMiddleware leaves its thread in another language
        yield


@pytest.fixture
def make_operator() -> MakeOperator:
    """Returns a browser with the login of somebody who has these permissions."""

    def make(*permissions: str, name: str = "operator") -> Client:
        user = User.objects.create_user(name, is_staff=True)
        user.user_permissions.set(
            Permission.objects.filter(content_type__app_label="distlock", codename__in=permissions)
        )
        client = Client(enforce_csrf_checks=False)
        client.force_login(user)
        return client

    return make


@pytest.fixture
def operator(make_operator: MakeOperator) -> Client:
    """The browser of somebody who may do all that there is to do with locks."""
    return make_operator("view_lock", "revoke_lock", "break_lock", "limit_lock")
