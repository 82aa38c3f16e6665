from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from example_project.shop import till
from example_project.shop.models import Order, Payment, Product

if TYPE_CHECKING:  # ModelAdmin is generic for the type checker only
    from django.db.models import QuerySet
    from django.http import HttpRequest

    ProductBase = admin.ModelAdmin[Product]
    OrderBase = admin.ModelAdmin[Order]
    PaymentBase = admin.ModelAdmin[Payment]
else:
    ProductBase = OrderBase = PaymentBase = admin.ModelAdmin

PIECES = 10


@admin.register(Product)
class ProductAdmin(ProductBase):
    """Products, whose stock is written at the till alone: a form would write an old number."""

    list_display = ("name", "sku", "price", "quantity", "strategy")
    list_filter = ("strategy",)
    search_fields = ("name", "sku")
    actions = ("restock",)

    def get_readonly_fields(
        self, request: HttpRequest, obj: Product | None = None
    ) -> tuple[str, ...]:
        return ("quantity",) if obj else ()

    def save_model(self, request: HttpRequest, obj: Product, form: Any, change: bool) -> None:
        obj.save(update_fields=form.changed_data if change else None)

    @admin.action(description=_("Put new pieces on empty shelves"), permissions=["change"])
    def restock(self, request: HttpRequest, products: QuerySet[Product]) -> None:
        for product in products:
            till.restock(product.sku, PIECES)


@admin.register(Order)
class OrderAdmin(OrderBase):
    list_display = ("idempotency_key", "product", "buyer", "status", "created_at")
    list_filter = ("product", "status")
    list_select_related = ("product",)
    search_fields = ("buyer", "idempotency_key")


@admin.register(Payment)
class PaymentAdmin(PaymentBase):
    list_display = ("idempotency_key", "sku", "buyer", "status", "worker", "created_at")
    list_filter = ("status", "sku")
    search_fields = ("buyer", "idempotency_key")
