from __future__ import annotations

from django.urls import path

from example_project.shop import views

app_name = "shop"
urlpatterns = [
    path("", views.home, name="home"),
    path("products/<slug:sku>/", views.product, name="product"),
    path("products/<slug:sku>/buy/<slug:ticket>/", views.buy, name="buy"),
    path("products/<slug:sku>/compare/<slug:ticket>/", views.compare, name="compare"),
    path("products/<slug:sku>/line/<slug:ticket>/", views.line, name="line"),
    path("orders/<uuid:key>/", views.order, name="order"),
]
