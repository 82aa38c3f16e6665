"""Django's templates, as a site has them."""

from __future__ import annotations

TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
