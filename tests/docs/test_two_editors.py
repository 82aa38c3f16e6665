"""The admin of docs/how-to/two-editors.md: one edits, and a form that is too old is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.test import Client
from django.urls import path
from django.utils import translation
from pytest_django import Settings

from distlock import zk_lease
from example_project import settings as example_settings
from example_project.shop.models import Product
from tests.docs.names import Names
from tests.docs.running import run_page
from tests.kit.helpers import Urls

PAGE = "docs/how-to/two-editors.md"


@pytest.fixture
def page() -> str:
    return PAGE


@pytest.fixture
def lamp(names: Names, settings: Settings) -> Iterator[Product]:
    run_page(PAGE, names)
    site = AdminSite()
    site.register(Product, names["ProductAdmin"])
    for name in ("MIDDLEWARE", "TEMPLATES", "STATIC_URL"):
        setattr(settings, name, getattr(example_settings, name))
    settings.ROOT_URLCONF = Urls(path("admin/", site.urls))
    with translation.override("en"):  # LocaleMiddleware leaves its thread in another language
        yield Product.objects.get(sku="lamp")


class Editor:
    """A user of the admin, with the form that is open in the browser."""

    def __init__(self, name: str, product: Product) -> None:
        self.client = Client()
        self.client.force_login(User.objects.create_superuser(name))
        self.url = f"/admin/shop/product/{product.pk}/change/"

    def open(self) -> str:
        answer = self.client.get(self.url)
        context: Any = answer.context
        form = context["adminform"].form
        self.data = {name: form[name].value() for name in form.fields}
        return answer.content.decode()

    def save(self, name: str) -> Any:
        return self.client.post(self.url, self.data | {"name": name})


def test_one_edits_and_the_other_looks(lamp: Product) -> None:
    ann, bob = Editor("ann", lamp), Editor("bob", lamp)
    assert 'name="name"' in ann.open()
    seen = bob.open()
    assert 'name="name"' not in seen
    assert "deletelink" in ann.open()
    assert "deletelink" not in seen
    assert re.search(r"Edited by ann \(\S+\) until 20\S+ \S+ UTC", seen)
    assert bob.save("of Bob").status_code == 403
    assert ann.save("of Ann").status_code == 302
    assert Product.objects.get(pk=lamp.pk).name == "of Ann"
    assert 'name="name"' in bob.open()
    assert bob.save("of Bob").status_code == 302
    assert Product.objects.get(pk=lamp.pk).name == "of Bob"


def test_a_form_that_somebody_else_has_overtaken_is_refused(lamp: Product) -> None:
    ann, bob = Editor("ann", lamp), Editor("bob", lamp)
    ann.open()
    zk_lease(f"product:{lamp.pk}", 1, owner="ann").release()  # as if its time were up
    bob.open()
    assert ann.save("of Ann").status_code == 403
    assert bob.save("of Bob").status_code == 302
    answer = ann.save("of Ann")
    assert "Somebody has edited this since you opened it." in answer.content.decode()
    ann.open()
    assert ann.save("of Ann").status_code == 302
    assert Product.objects.get(pk=lamp.pk).name == "of Ann"


def test_who_comes_back_late_may_save_if_nobody_else_was_there(lamp: Product) -> None:
    ann = Editor("ann", lamp)
    ann.open()
    lease = zk_lease(f"product:{lamp.pk}", 900, owner="ann")
    lease.renew(0.01)
    while lease.locked():
        pass
    assert ann.save("of Ann").status_code == 302
    assert not lease.locked()
