"""What is for sale, who bought it, and what the payment provider remembers."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from distlock import FencedModel


class Product(FencedModel):
    """A product, its stock, and the strategy that sells it.

    Its `fence` is the highest fencing token that wrote it. The shop always passes its hold; the
    strategies that it is compared with do not.
    """

    class Strategy(models.TextChoices):
        """A key of `strategies.STRATEGIES`."""

        NAIVE = "naive", _("naive: read, decide, pay, write")
        CONDITIONAL = "conditional", _("conditional: one conditional UPDATE")
        ZK = "zk", _("zk: a distributed lock on ZooKeeper")
        ZK_FENCED = "zk_fenced", _("zk_fenced: the lock, and its fencing token in the database")
        REDIS = "redis", _("redis: a distributed lock on Redis")

    sku = models.SlugField("SKU", max_length=64, unique=True)
    name = models.CharField(max_length=200)
    price = models.DecimalField(max_digits=8, decimal_places=2, default=10, help_text="In euros.")
    quantity = models.IntegerField(help_text="Pieces left.")
    strategy = models.CharField(max_length=20, choices=Strategy.choices, default=Strategy.ZK_FENCED)

    class Meta:
        ordering = ("name",)
        constraints = (
            # The database refuses a negative stock, except for the strategy whose mistakes should
            # stay visible. (It would hardly stop that one: a lost update writes a wrong number,
            # seldom a negative one.)
            models.CheckConstraint(
                name="shop_product_stock_not_negative",
                condition=models.Q(quantity__gte=0) | models.Q(strategy="naive"),
            ),
        )

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        if self.strategy == self.Strategy.REDIS and "redis" not in settings.DISTLOCK:
            advice = _("Start the shop with DISTLOCK_REDIS, the URL of a Redis server.")
            raise ValidationError({"strategy": advice})

    def get_absolute_url(self) -> str:
        return reverse("shop:product", args=[self.sku])

    def get_buy_url(self, ticket: str) -> str:
        """Return where its buyer with this ticket asks for a piece."""
        shops_own = self.strategy == self.Strategy.ZK_FENCED
        return reverse("shop:buy" if shops_own else "shop:compare", args=[self.sku, ticket])


class Order(models.Model):
    """One piece, sold to one buyer. The same idempotency key never makes a second order."""

    class Status(models.TextChoices):
        """`RESERVED` is a step of `conditional` and `zk_fenced`; the others write paid orders."""

        RESERVED = "reserved"
        PAID = "paid"

    product = models.ForeignKey(Product, on_delete=models.CASCADE, related_name="orders")
    buyer = models.CharField(max_length=100)
    idempotency_key = models.UUIDField(unique=True)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PAID)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    shipped_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.product} for {self.buyer}"

    def get_absolute_url(self) -> str:
        return reverse("shop:order", args=[self.idempotency_key])


class Payment(models.Model):
    """The payment provider's record: it stands for a system beyond the shop's transactions."""

    class Status(models.TextChoices):
        PENDING = "pending"
        AUTHORIZED = "authorized"
        CHARGED = "charged"
        DECLINED = "declined"
        REFUNDED = "refunded"
        VOIDED = "voided"

    idempotency_key = models.UUIDField(primary_key=True)
    sku = models.SlugField("SKU", max_length=64)
    buyer = models.CharField(max_length=100)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.PENDING)
    worker = models.PositiveIntegerField(
        "worker process", help_text="The process id that asked last."
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.buyer}: {self.status}"
