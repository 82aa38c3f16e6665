"""A content type and three permissions; no table (`distlock.models`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from django.db import migrations, models

if TYPE_CHECKING:
    from django.db.migrations.operations.base import Operation


class Migration(migrations.Migration):
    initial = True

    dependencies: ClassVar[list[tuple[str, str]]] = []

    operations: ClassVar[list[Operation]] = [
        migrations.CreateModel(
            name="Lock",
            fields=[
                (
                    "id",
                    models.CharField(
                        max_length=500, primary_key=True, serialize=False, verbose_name="place"
                    ),
                ),
            ],
            options={
                "verbose_name": "lock",
                "verbose_name_plural": "locks",
                "permissions": [
                    ("revoke_lock", "Can ask for the release of a lock"),
                    ("break_lock", "Can break a lock"),
                ],
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
    ]
