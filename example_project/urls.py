"""The shop at the root, Django's admin beside it, and the switch of the language."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("i18n/", include("django.conf.urls.i18n")),
    path("", include("example_project.shop.urls")),
]
