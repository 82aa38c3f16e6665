from __future__ import annotations

from typing import Any

from django.urls import path

from tests.testproject import views

VIEWS: dict[str, Any] = {**views.LOCKED, **views.EXEMPT, **views.ASYNC, **views.EXEMPT_ASYNC}

urlpatterns = [
    *(path(f"{name}/<name>/", view) for name, view in VIEWS.items()),
    path("generic/<pk>/", views.Generic.as_view()),
    path("naive/<name>/", views.naive),
    path("unlocked/<name>/", views.unlocked),
    path("fails/<name>/", views.fails),
    path("hold/<name>/", views.leave_locked_in_a_thread),
]
