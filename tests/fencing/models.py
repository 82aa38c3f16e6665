"""Fenced models of the tests' own; `conftest.py` makes their tables."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from distlock import FencedModel
from distlock.fencing import FencedQuerySet


class Stock(FencedModel):
    """What most tests write to."""

    sku = models.CharField(max_length=20)
    quantity = models.IntegerField(default=0)
    note = models.CharField(max_length=20, default="")

    # Said for the type checker, which does not see the app.
    objects: ClassVar[FencedQuerySet[Stock]] = FencedQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        app_label = "fencing"
        constraints = (
            models.CheckConstraint(
                name="fencing_stock_not_negative", condition=models.Q(quantity__gte=0)
            ),
        )

    def __str__(self) -> str:
        return self.sku


class Shelf(FencedModel):
    """Its key is natural, so an instance that was never read may name a row."""

    name = models.CharField(max_length=20, primary_key=True)
    width = models.IntegerField(default=0)

    objects: ClassVar[FencedQuerySet[Shelf]] = FencedQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        app_label = "fencing"

    def __str__(self) -> str:
        return self.name


class WideManager(models.Manager["Item"]):
    """A manager whose every query spans a relation."""

    def get_queryset(self) -> models.QuerySet[Item]:
        return super().get_queryset().filter(shelf__width__gte=2)


class Item(FencedModel):
    """A filter can span its relation to a shelf; Django's own `save` has one, too."""

    shelf = models.ForeignKey(Shelf, models.CASCADE)
    quantity = models.IntegerField(default=0)

    objects: ClassVar[FencedQuerySet[Item]] = FencedQuerySet.as_manager()  # type: ignore[assignment]
    wide = WideManager()

    class Meta:
        app_label = "fencing"
        base_manager_name = "wide"

    def __str__(self) -> str:
        return str(self.quantity)


class OpenManager(models.Manager["Counter"]):
    """A manager that knows nothing of fences, and hides rows."""

    def get_queryset(self) -> models.QuerySet[Counter]:
        return super().get_queryset().filter(closed=False)


class Counter(FencedModel):
    """A fenced model with a manager of its own."""

    value = models.IntegerField(default=0)
    closed = models.BooleanField(default=False)

    objects: ClassVar[OpenManager] = OpenManager()  # type: ignore[assignment]

    class Meta:
        app_label = "fencing"

    def __str__(self) -> str:
        return str(self.value)


MODELS = (Stock, Shelf, Item, Counter)
