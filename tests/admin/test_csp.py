"""A Content Security Policy with a nonce, which Django has since 6.0 (``csp_nonce``)."""

from __future__ import annotations

import html
import re

import pytest
from django.http import HttpRequest
from django.test import Client
from pytest_django import Settings

from distlock import zk_lock
from tests.admin.tools import LIST, Page, address

pytestmark = pytest.mark.usefixtures("tree")


def nonce(_: HttpRequest) -> dict[str, str]:
    """Stands for ``django.template.context_processors.csp``, once the admin has used the nonce."""
    return {"csp_nonce": "used-once"}


@pytest.fixture
def policy(settings: Settings) -> None:
    (template,) = settings.TEMPLATES
    options = template["OPTIONS"]
    processors = [*options["context_processors"], f"{__name__}.nonce"]
    settings.TEMPLATES = [{**template, "OPTIONS": {**options, "context_processors": processors}}]


def ours(page: Page) -> list[str]:
    """The elements of a page that load something of this app."""
    return re.findall(r"<(?:link|script) [^>]*distlock/[^>]*>", page.content.decode())


def confirmation(operator: Client) -> str:
    """The address of the page that asks whether to break the lock."""
    detail = operator.get(address("key")).content.decode()
    links = (html.unescape(link) for link in re.findall(r'href="([^"]+)"', detail))
    return next(link for link in links if "/break/" in link)


@pytest.mark.usefixtures("policy")
def test_what_the_pages_load_carries_the_nonce(operator: Client) -> None:
    with zk_lock("key"):
        for path in (LIST, address("key"), confirmation(operator)):
            elements = ours(operator.get(path))
            assert elements
            assert all('nonce="used-once"' in element for element in elements), elements
