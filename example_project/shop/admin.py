from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin

from example_project.shop.models import Order, Payment, Product

if TYPE_CHECKING:  # ModelAdmin is generic for the type checker only
    ProductBase = admin.ModelAdmin[Product]
    OrderBase = admin.ModelAdmin[Order]
    PaymentBase = admin.ModelAdmin[Payment]
else:
    ProductBase = OrderBase = PaymentBase = admin.ModelAdmin


@admin.register(Product)
class ProductAdmin(ProductBase):
    list_display = ("name", "sku", "quantity", "strategy")
    list_editable = ("quantity",)
    list_filter = ("strategy",)
    search_fields = ("name", "sku")


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
