from __future__ import annotations

from uuid import uuid4

from django import forms
from django.utils.translation import gettext_lazy as _


class BuyForm(forms.Form):
    """The buy button: a name, and the key that makes a repeated POST the same purchase."""

    buyer = forms.CharField(
        label=_("Your name"),
        max_length=100,
        initial="Ada",
        widget=forms.TextInput(attrs={"autocomplete": "name"}),
    )
    # A callable: a new key for every page load. Without autocomplete="off" a browser would
    # fill in the old one on reload.
    idempotency_key = forms.UUIDField(
        initial=uuid4, widget=forms.HiddenInput(attrs={"autocomplete": "off"})
    )

    @property
    def key(self) -> str:
        return str(self["idempotency_key"].value())

    @property
    def ticket(self) -> str:
        """The key's beginning: it tells buyers in the line apart, and opens nobody's receipt."""
        return self.key[:8]
