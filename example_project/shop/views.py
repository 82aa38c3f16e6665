"""The shop's pages. `buy` answers browsers with HTML and scripts with JSON, as they accept.

No page takes a lock itself: `LockBusy` and `LockUnavailable` pass through, and distlock's
middleware turns them into 423 and 503 with a `Retry-After`. What a lost lock means for the buyer
only the shop can say, so `buy` answers that.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_POST, require_safe

from distlock import LockLost, StaleToken
from example_project.shop import strategies
from example_project.shop.forms import BuyForm
from example_project.shop.models import Order, Product
from example_project.shop.payment import PaymentDeclined

REFUSALS: dict[type[Exception], dict[str, Any]] = {
    strategies.SoldOut: {"status": 409, "message": "Sold out. Nothing was charged."},
    PaymentDeclined: {
        "status": 402,
        "message": "Your payment was declined. Nothing was charged.",
    },
    StaleToken: {
        "status": 409,
        "message": "This server stood still while somebody else was served, so it sold you "
        "nothing. Nothing was charged. Please press the button again.",
        "ask_again": "stale",
    },
    # At the end of the `with` block the sale may be done: the key finds out.
    LockLost: {
        "status": 409,
        "message": "This server stood still while it served you. Please press the button again: "
        "you will not be charged twice.",
        "ask_again": "lost",
    },
}


def wants_json(request: HttpRequest) -> bool:
    return request.get_preferred_type(["text/html", "application/json"]) == "application/json"


@require_safe
@never_cache
def home(request: HttpRequest) -> HttpResponse:
    """All products with their stock."""
    return render(request, "shop/home.html", {"products": Product.objects.all()})


@require_safe
@never_cache
@ensure_csrf_cookie
def product(request: HttpRequest, sku: str) -> HttpResponse:
    """One product: its stock, the buy button, and a new idempotency key with every load."""
    product = get_object_or_404(Product, sku=sku)
    form = BuyForm()
    if wants_json(request):
        key = form.get_initial_for_field(form.fields["idempotency_key"], "idempotency_key")
        return JsonResponse(
            {"sku": product.sku, "left": product.quantity, "idempotency_key": str(key)}
        )
    return render(request, "shop/product.html", {"product": product, "form": form})


@require_POST
def buy(request: HttpRequest, sku: str) -> HttpResponse:
    """Buy one piece.

    Answers 201 (200 for a key that bought before), 409 sold out, 402 payment declined,
    400 for a bad form and 422 for a key that bought something else. A lock that was lost on the
    way is 409, too, with a `Retry-After`: asking again with the same key is safe.
    """
    product = get_object_or_404(Product, sku=sku)
    form = BuyForm(request.POST)
    if not form.is_valid():
        return refuse(
            request,
            product,
            form,
            status=400,
            message="Please fill in your name and press the button again.",
        )
    key: UUID = form.cleaned_data["idempotency_key"]
    earlier = Order.objects.filter(idempotency_key=key).first()
    if earlier and earlier.product_id != product.pk:
        return refuse(
            request,
            product,
            form,
            status=422,
            message="This page was already used to buy something else. Please reload it.",
        )
    try:
        order = strategies.buy(product, buyer=form.cleaned_data["buyer"], key=key)
    except tuple(REFUSALS) as error:
        return refuse(request, product, form, **REFUSALS[type(error)])
    if not wants_json(request):
        return redirect(order)
    product.refresh_from_db()
    answer = {"order": order.pk, "url": order.get_absolute_url(), "left": product.quantity}
    return JsonResponse(answer, status=200 if earlier else 201)


@require_safe
@never_cache
def order(request: HttpRequest, key: UUID) -> HttpResponse:
    """The receipt. Only the buyer knows the key."""
    order = get_object_or_404(Order.objects.select_related("product"), idempotency_key=key)
    return render(request, "shop/order.html", {"order": order})


def refuse(
    request: HttpRequest,
    product: Product,
    form: BuyForm,
    *,
    status: int,
    message: str,
    ask_again: str = "",
) -> HttpResponse:
    """Say why nothing was bought, in the form that the client reads.

    `ask_again`: why the client may do so at once. The page then keeps its key, which makes the
    next try the same purchase.
    """
    product.refresh_from_db()
    response: HttpResponse
    if wants_json(request):
        answer: dict[str, Any] = {"detail": message, "left": product.quantity}
        response = JsonResponse(
            {**answer, "reason": ask_again} if ask_again else answer, status=status
        )
    else:
        initial = {"buyer": form.data.get("buyer", "")}
        if ask_again:
            initial["idempotency_key"] = form.data["idempotency_key"]
        context = {"product": product, "form": BuyForm(initial=initial), "refused": message}
        response = render(request, "shop/product.html", context, status=status)
    if ask_again:
        response["Retry-After"] = "1"
    return response
