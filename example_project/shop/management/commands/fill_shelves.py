"""`manage.py fill_shelves`: demo products, and somebody who may see their locks."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand
from django.utils.translation import gettext_noop as _

from example_project.shop.models import Product

USER = "demo"
PASSWORD = "demo"  # noqa: S105 - the shop answers on loopback only
PRODUCTS = (
    ("lamp", _("Desk lamp"), 49, Product.Strategy.NAIVE),
    ("kettle", _("Copper kettle"), 65, Product.Strategy.CONDITIONAL),
    ("radio", _("Pocket radio"), 89, Product.Strategy.ZK),
    ("camera", _("Instant camera"), 129, Product.Strategy.ZK_FENCED),
    ("tent", _("Two-person tent"), 149, Product.Strategy.REDIS),
)


class Command(BaseCommand):
    help = "Add what is missing of the demo products and the demo login."

    def handle(self, *_: Any, **__: Any) -> None:
        for sku, name, price, strategy in PRODUCTS:
            Product.objects.get_or_create(
                sku=sku,
                defaults={"name": name, "price": price, "quantity": 10, "strategy": strategy},
            )
        # Without a Redis, the tent has its lock where the others have theirs.
        tent = Product.Strategy.REDIS if "redis" in settings.DISTLOCK else Product.Strategy.ZK
        Product.objects.filter(sku="tent").update(strategy=tent)
        users = get_user_model().objects
        if not users.filter(username=USER).exists():
            users.create_superuser(USER, password=PASSWORD)
