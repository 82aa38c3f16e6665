"""Tools of the admin page's tests: addresses, and what a page says."""

from __future__ import annotations

import html
import re
from typing import Any, Protocol
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.test import Client
from django.urls import reverse

from distlock.inspection.state import Contender
from distlock.models import Lock

LIST = "/admin/distlock/lock/"


class Page(Protocol):
    """What a browser was answered."""

    @property
    def content(self) -> bytes: ...


class MakeOperator(Protocol):
    """Returns a browser with the login of somebody who has these permissions."""

    def __call__(self, *permissions: str, name: str = "operator") -> Client: ...


def address(name: str, view: str = "change", using: str = "default", **parameters: Any) -> str:
    """The address of a page of a lock."""
    path = reverse(f"admin:distlock_lock_{view}", args=[quote(Lock.at(using, name).pk)])
    return f"{path}?{urlencode(parameters)}" if parameters else path


def of(contender: Contender, name: str, view: str) -> str:
    """The address of what to do with somebody, as a link of the page has it."""
    one = contender.participant
    node = one.path.partition(f"/{name}/")[2]
    return address(name, view, node=node, token=one.token)


def said(response: Page) -> str:
    """What a page says, without its tags."""
    text = re.sub(r"<[^>]*>", " ", markup(response))
    return re.sub(r"\s+", " ", html.unescape(text))


def markup(response: Page) -> str:
    """The page itself."""
    return response.content.decode()


def keys(response: Page) -> list[str]:
    """The keys of the list, from top to bottom."""
    return [html.unescape(key) for key in re.findall(r'data-key="([^"]*)"', markup(response))]


def rows(response: Page) -> list[tuple[str, str]]:
    """The participants of a lock, from top to bottom: what each does, and its node."""
    found = re.findall(r'data-node="([^"]*)" data-token="\d+" data-state="(\w+)"', markup(response))
    return [(state, html.unescape(node)) for node, state in found]
