"""The shop's pages. `buy` answers browsers with HTML and scripts with JSON, as they accept.

A lock that is busy, or not available, is answered by distlock: 423 and 503, with a `Retry-After`.
What a lost lock means for the buyer only the shop can say, so `explains_refusals` does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_POST, require_safe

from distlock import LockLost, StaleToken, zk_locked
from example_project.shop import strategies, till
from example_project.shop.forms import BuyForm
from example_project.shop.models import Order, Product
from example_project.shop.payment import PaymentDeclined

BuyView = Callable[[HttpRequest, str, str], HttpResponse]
Sell = Callable[..., Order]


class BadForm(Exception):
    """The form is not filled in."""


class KeyUsed(Exception):
    """The key has bought something else."""


REFUSALS: dict[type[Exception], dict[str, Any]] = {
    BadForm: {"status": 400, "message": _("Please fill in your name and press the button again.")},
    KeyUsed: {
        "status": 422,
        "message": _("This page was already used to buy something else. Please reload it."),
    },
    till.SoldOut: {"status": 409, "message": _("Sold out. Nothing was charged.")},
    PaymentDeclined: {
        "status": 402,
        "message": _("Your payment was declined. Nothing was charged."),
    },
    StaleToken: {
        "status": 409,
        "message": _(
            "This server stood still while somebody else was served, so it sold you nothing. "
            "Nothing was charged. Please press the button again."
        ),
        "ask_again": "stale",
    },
    # At the end of the lock the sale may be done: the key finds out.
    LockLost: {
        "status": 409,
        "message": _(
            "This server stood still while it served you. Please press the button again: you will "
            "not be charged twice."
        ),
        "ask_again": "lost",
    },
}


def explains_refusals(view: BuyView) -> BuyView:
    """Say why nothing was bought. It is outside the lock, whose loss is known at its end."""

    @functools.wraps(view)
    def explained(request: HttpRequest, sku: str, ticket: str) -> HttpResponse:
        try:
            return view(request, sku, ticket)
        except tuple(REFUSALS) as error:
            return refuse(request, sku, **REFUSALS[type(error)])

    return explained


@require_POST
@explains_refusals
@zk_locked("stock:<sku>", timeout=settings.LOCK_SECONDS)
def buy(request: HttpRequest, sku: str, ticket: str) -> HttpResponse:
    """Buy one piece: one buyer of a product at a time, in all processes, first come first served.

    Answers 201 (200 for a key that bought before), 409 sold out, 402 payment declined,
    400 for a bad form, 422 for a key that bought something else, and 423 for a line that is too
    long. A lock that was lost on the way is 409, too, with a `Retry-After`: asking again with the
    same key is safe.
    """
    product = get_object_or_404(Product, sku=sku)
    return purchase(request, product, functools.partial(till.sell, sku))


@require_POST
@explains_refusals
def compare(request: HttpRequest, sku: str, ticket: str) -> HttpResponse:
    """Buy one piece as the product's strategy does it, with less care: for `manage.py sale`."""
    product = get_object_or_404(Product, sku=sku)
    return purchase(request, product, functools.partial(strategies.buy, product))


@require_safe
@never_cache
def line(request: HttpRequest, sku: str, ticket: str) -> HttpResponse:
    """Where a buyer is in the line of a product, for the page that waits: 0 is at the till.

    The path of a buyer's request is in its node in the lock's queue, and ends with the ticket.
    """
    return JsonResponse({"place": till.place_in_line(sku, ticket)})


@require_safe
@never_cache
def home(request: HttpRequest) -> HttpResponse:
    """All products with their price and stock."""
    return render(request, "shop/home.html", {"products": Product.objects.all()})


@require_safe
@never_cache
@ensure_csrf_cookie
def product(request: HttpRequest, sku: str) -> HttpResponse:
    """One product: its price, its stock, the buy button, a new idempotency key with every load."""
    product = get_object_or_404(Product, sku=sku)
    form = BuyForm()
    if wants_json(request):
        return JsonResponse(
            {
                "sku": product.sku,
                "left": product.quantity,
                "idempotency_key": form.key,
                "buy": product.get_buy_url(form.ticket),
            }
        )
    return render(request, "shop/product.html", page_of(product, form))


@require_safe
@never_cache
def order(request: HttpRequest, key: UUID) -> HttpResponse:
    """The receipt. Only the buyer knows the key."""
    order = get_object_or_404(Order.objects.select_related("product"), idempotency_key=key)
    return render(request, "shop/order.html", {"order": order})


def wants_json(request: HttpRequest) -> bool:
    return request.get_preferred_type(["text/html", "application/json"]) == "application/json"


def page_of(product: Product, form: BuyForm) -> dict[str, Any]:
    """Return the context of a product's page."""
    return {
        "product": product,
        "form": form,
        "buy_url": product.get_buy_url(form.ticket),
        "line_url": reverse("shop:line", args=[product.sku, form.ticket]),
    }


def purchase(request: HttpRequest, product: Product, sell: Sell) -> HttpResponse:
    """Sell what the form asks for, and answer in the form that the client reads."""
    form = BuyForm(request.POST)
    if not form.is_valid():
        raise BadForm
    key = form.cleaned_data["idempotency_key"]
    earlier = Order.objects.filter(idempotency_key=key).first()
    if earlier and earlier.product_id != product.pk:
        raise KeyUsed
    order = sell(buyer=form.cleaned_data["buyer"], key=key)
    if not wants_json(request):
        return redirect(order)
    product.refresh_from_db()
    answer = {"order": order.pk, "url": order.get_absolute_url(), "left": product.quantity}
    return JsonResponse(answer, status=200 if earlier else 201)


def refuse(
    request: HttpRequest, sku: str, *, status: int, message: str, ask_again: str = ""
) -> HttpResponse:
    """Say why nothing was bought, in the form that the client reads.

    `ask_again`: why the client may do so at once. The page then keeps its key, which makes the
    next try the same purchase.
    """
    product = Product.objects.get(sku=sku)
    response: HttpResponse
    if wants_json(request):
        answer: dict[str, Any] = {"detail": message, "left": product.quantity}
        response = JsonResponse(
            {**answer, "reason": ask_again} if ask_again else answer, status=status
        )
    else:
        initial = {"buyer": request.POST.get("buyer", "")}
        if ask_again:
            initial["idempotency_key"] = str(UUID(request.POST["idempotency_key"]))
        context = {**page_of(product, BuyForm(initial=initial)), "refused": message}
        response = render(request, "shop/product.html", context, status=status)
    if ask_again:
        response["Retry-After"] = "1"
    return response
