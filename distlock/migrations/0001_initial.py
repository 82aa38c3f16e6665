"""A content type and four permissions for locks, and the tables of the history."""

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
                    ("limit_lock", "Can change the limit of a semaphore"),
                ],
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="LockEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("using", models.CharField(max_length=255, verbose_name="alias")),
                ("name", models.CharField(max_length=255, verbose_name="place")),
                ("key", models.CharField(max_length=255, verbose_name="key")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("held", "held and released"),
                            ("busy", "waited in vain"),
                            ("failed", "failed"),
                            ("deadlock", "gave way in a deadlock"),
                            ("lost", "lost"),
                            ("broken", "broken"),
                        ],
                        max_length=10,
                        verbose_name="event",
                    ),
                ),
                ("at", models.DateTimeField(db_index=True, verbose_name="time")),
                ("waited", models.FloatField(null=True, verbose_name="waited")),
                ("held_for", models.FloatField(null=True, verbose_name="held")),
                ("owner", models.CharField(max_length=255, verbose_name="owner")),
                ("hostname", models.CharField(max_length=255, verbose_name="host")),
                ("pid", models.PositiveIntegerField(verbose_name="process")),
                ("token", models.BigIntegerField(null=True, verbose_name="token")),
                ("detail", models.CharField(max_length=1000, verbose_name="details")),
            ],
            options={
                "verbose_name": "event",
                "verbose_name_plural": "history",
                "default_permissions": (),
                "indexes": [models.Index(fields=["using", "name", "at"], name="distlock_of_lock")],
            },
        ),
        migrations.CreateModel(
            name="LockMinute",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("minute", models.IntegerField()),
                ("using", models.CharField(max_length=255)),
                ("template", models.CharField(max_length=255)),
                ("kind", models.CharField(max_length=10)),
                ("bucket", models.PositiveSmallIntegerField()),
                ("count", models.PositiveBigIntegerField(default=0)),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(
                        fields=["minute", "using", "template", "kind", "bucket"],
                        name="distlock_minute",
                    )
                ],
            },
        ),
    ]
