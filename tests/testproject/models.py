from __future__ import annotations

from typing import ClassVar

from django.db import models


class Counter(models.Model):
    """A number that many add to. Its table is made by `database.ProjectDatabase`."""

    name = models.CharField(max_length=100, primary_key=True)
    value = models.IntegerField(default=0)

    # Said for the type checker, which does not see the app either.
    objects: ClassVar[models.Manager[Counter]] = models.Manager()

    class Meta:
        # Named, so that the tests' own process may import the model without installing the app.
        app_label = "testproject"

    def __str__(self) -> str:
        return f"{self.name}: {self.value}"
