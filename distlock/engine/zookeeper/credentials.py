"""Reads TLS and SASL from the settings: what a connection shows, and what it expects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured
from django.views.decorators.debug import sensitive_variables

from distlock.engine import session_reaper

if TYPE_CHECKING:
    import ssl

    from distlock.engine.configuration import Configuration


@sensitive_variables()
def sasl_options(conf: Configuration) -> dict[str, str] | None:
    """Return kazoo's options for credentials of the scheme ``sasl``, None without any."""
    for scheme, credential in conf.auth:
        if scheme == "sasl":
            username, _, password = credential.partition(":")
            return {"mechanism": "DIGEST-MD5", "username": username, "password": password}
    return None


@sensitive_variables()  # error mails show variables
def tls_context(conf: Configuration) -> ssl.SSLContext | None:
    """Read the files of ``TLS``; raise ImproperlyConfigured if one cannot be used."""
    tls = conf.tls
    if tls is None:
        return None
    try:
        return session_reaper.tls_context(tls)
    except OSError as error:  # SSLError is one
        files = ", ".join(f"{name} {tls[name]}" for name in ("ca", "cert", "key") if name in tls)
        raise ImproperlyConfigured(
            f"DISTLOCK[{conf.alias!r}]['TLS'] cannot be used: {error}. Check the files ({files}) "
            "and key_password."
        ) from error
