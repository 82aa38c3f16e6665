"""`distlock.E006`: a fenced model is one table, since the guard is in one UPDATE."""

from __future__ import annotations

from django.db import models
from django.test.utils import isolate_apps

from distlock import FencedModel
from tests.fencing.models import MODELS


def test_models_of_one_table_pass() -> None:
    ids = {message.id for model in MODELS for message in model.check()}
    assert ids <= {"fields.E300"}  # the tests' app is not installed


@isolate_apps("tests.fencing")
def test_a_fenced_parent_with_a_table_of_its_own_is_an_error() -> None:
    class Parent(FencedModel):
        class Meta:
            app_label = "fencing"

    class Child(Parent):
        class Meta:
            app_label = "fencing"

    assert Parent.check() == []
    (error,) = Child.check()
    assert (error.id, error.obj) == ("distlock.E006", Child)
    assert error.hint == "Inherit from an abstract model."


@isolate_apps("tests.fencing")
def test_a_parent_that_is_not_fenced_is_an_error_too() -> None:
    class Parent(models.Model):  # noqa: DJ008
        class Meta:
            app_label = "fencing"

    class Child(Parent, FencedModel):  # noqa: DJ008
        class Meta:
            app_label = "fencing"

    assert [message.id for message in Child.check()] == ["distlock.E006"]


@isolate_apps("tests.fencing")
def test_abstract_parents_and_proxies_pass() -> None:
    class Base(FencedModel):
        class Meta:
            abstract = True

    class Concrete(Base):
        class Meta:
            app_label = "fencing"

    class Proxy(Concrete):
        class Meta:
            app_label = "fencing"
            proxy = True

    assert Concrete.check() + Proxy.check() == []
