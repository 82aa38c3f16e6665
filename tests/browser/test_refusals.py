"""The pages of a refused request: they count down, try again once, and send no form again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any
from unittest.mock import ANY

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.http import HttpRequest, HttpResponse
from django.urls import path
from pytest_django import Settings

from distlock import zk_lock
from distlock.checks import MIDDLEWARE
from distlock_chaos.ports import free_ports
from tests.browser.axe import findings
from tests.browser.chromium import Chromium, Tab
from tests.browser.test_access import LIGHTNESS, OVERFLOW
from tests.testproject.elsewhere import held_elsewhere
from tests.testproject.templates import TEMPLATES

pytestmark = pytest.mark.deep

KEY = "stock:42"
#: The methods of the requests for the lock.
asked: list[str] = []

#: Note each text that the two parts of the page have from now on.
NOTE_TEXTS = """
() => {
    window.texts = {wait: [], news: []};
    for (const [id, texts] of Object.entries(window.texts)) {
        const part = document.getElementById(id);
        new MutationObserver(() => texts.push(part.textContent))
            .observe(part, {childList: true, characterData: true, subtree: true});
    }
}
"""


def form(request: HttpRequest) -> HttpResponse:
    del request
    return HttpResponse('<form action="/buy/" method="post"><input name="note"><button>Buy</form>')


def buy(request: HttpRequest) -> HttpResponse:
    asked.append(request.method or "")
    with zk_lock(KEY, timeout=0):
        return HttpResponse('<p id="sold">sold</p>')


def policed(get_response: Callable[[HttpRequest], HttpResponse]) -> Any:
    """Send the policy that the address names."""

    def answer(request: HttpRequest) -> HttpResponse:
        request.csp_nonce = "abc"  # type: ignore[attr-defined]
        response = get_response(request)
        if "policy" in request.GET:
            response["Content-Security-Policy"] = request.GET["policy"]
        return response

    return answer


urlpatterns = [path("form/", form), path("buy/", buy)]


@pytest.fixture
def address(distlock_settings: Settings) -> Iterator[str]:
    distlock_settings.ALLOWED_HOSTS = ["127.0.0.1"]
    distlock_settings.ROOT_URLCONF = __name__
    distlock_settings.TEMPLATES = TEMPLATES
    distlock_settings.MIDDLEWARE = [MIDDLEWARE, f"{__name__}.policed"]
    asked.clear()
    with ThreadedWSGIServer(("127.0.0.1", 0), WSGIRequestHandler) as server:
        server.set_app(WSGIHandler())
        serving = Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


@pytest.fixture
def customer(chromium: Chromium, address: str) -> Iterator[Callable[..., Tab]]:
    """Returns a new window on the site."""
    windows: list[Tab] = []

    def visit(**options: Any) -> Tab:
        windows.append(tab := chromium.open(address, **options))
        return tab

    yield visit
    for tab in windows:
        tab.close()


def use(settings: Settings, **options: Any) -> None:
    settings.DISTLOCK = {"default": {**settings.DISTLOCK["default"], **options}}


def get(tab: Tab, query: str = "") -> None:
    """Ask for the lock and get a refusal."""
    response = tab(lambda page: page.goto(f"/buy/{query}"))
    assert response is not None
    assert response.status in {423, 503}


def post(tab: Tab) -> None:
    """Send a form that asks for the lock."""
    tab.go("/form/")
    tab(lambda page: page.fill("input", "a present"))
    tab.click("button")
    tab.sees("#wait")


@pytest.fixture(params=["busy", "unavailable"])
def _refusing(request: pytest.FixtureRequest, distlock_settings: Settings) -> Iterator[None]:
    distlock_settings.DEBUG = True  # shows the reason of a 503
    use(distlock_settings, RETRY_AFTER=60)
    if request.param == "busy":
        with held_elsewhere(KEY):
            yield
    else:
        (port,) = free_ports(1)
        use(distlock_settings, HOSTS=f"127.0.0.1:{port}", CONNECT_TIMEOUT=0.3)
        yield


@pytest.mark.usefixtures("_refusing")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("ask", [get, post])
def test_axe_finds_nothing(
    customer: Callable[..., Tab], scheme: str, width: int, ask: Callable[[Tab], None]
) -> None:
    tab = customer(color_scheme=scheme, viewport={"width": width, "height": 800})
    ask(tab)
    assert tab(findings) == []
    assert tab(lambda page: page.evaluate(OVERFLOW)) == []
    assert (tab(lambda page: page.evaluate(LIGHTNESS)) < 128) == (scheme == "dark")


def test_the_page_gets_the_lock_by_itself(customer: Callable[..., Tab]) -> None:
    tab = customer()
    with held_elsewhere(KEY):
        get(tab)
    tab.sees("#sold")
    assert asked == ["GET", "GET"]


def test_it_tries_again_only_once(customer: Callable[..., Tab]) -> None:
    tab = customer()
    with held_elsewhere(KEY):
        get(tab)
        tab.sees("#by-itself")
        tab.sees("#news", text="You can try again now.")
        assert asked == ["GET", "GET"]
    tab.click("a")
    tab.sees("#sold")


def test_a_form_is_never_sent_again(customer: Callable[..., Tab]) -> None:
    tab = customer()
    with held_elsewhere(KEY):
        post(tab)
        tab.sees("#news", text="You can try again now.")
    assert asked == ["POST"]
    tab.click("#back button")
    tab.sees("form")
    assert tab(lambda page: page.input_value("input")) == "a present"


def test_a_screen_reader_hears_of_the_end_alone(
    customer: Callable[..., Tab], distlock_settings: Settings
) -> None:
    use(distlock_settings, RETRY_AFTER=2)
    tab = customer()
    with held_elsewhere(KEY):
        post(tab)
        tab(lambda page: page.evaluate(NOTE_TEXTS))
        tab.sees("[role=status]", text="You can try again now.")
    texts = tab(lambda page: page.evaluate("window.texts"))
    assert texts == {"news": ["You can try again now."], "wait": ANY}
    assert texts["wait"][-1] == "Try again in 1 s."


@pytest.mark.parametrize(
    ("query", "options"),
    [("", {"java_script_enabled": False}), ("?policy=default-src 'none'", {})],
    ids=["no JavaScript", "nothing inline"],
)
def test_it_can_be_used_without_its_script(
    customer: Callable[..., Tab], query: str, options: dict[str, Any]
) -> None:
    tab = customer(**options)
    with held_elsewhere(KEY):
        get(tab, query)
        tab.sees("#wait", text="Try again in")
        tab.sees_no("#by-itself")
    tab.click("a")
    tab.sees("#sold")
    assert asked == ["GET", "GET"]


def test_a_nonce_lets_style_and_script_in(customer: Callable[..., Tab]) -> None:
    tab = customer(color_scheme="dark")
    with held_elsewhere(KEY):
        get(tab, "?policy=default-src 'nonce-abc'")
        assert tab(lambda page: page.evaluate(LIGHTNESS)) < 128
    tab.sees("#sold")
