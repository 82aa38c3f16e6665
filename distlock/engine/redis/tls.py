"""Reads the options of TLS in a URL of Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.views.decorators.debug import sensitive_variables

from distlock.engine import session_reaper

from .address import address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlock.conf import Configuration

#: The options of the setting ``TLS``, which the session reaper knows → those of redis-py.
_FILES: Final = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
_PASSWORD: Final = {"key_password": "ssl_password"}


@sensitive_variables()
def tls_of(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return redis-py's options as those of the setting ``TLS``; None without TLS."""
    if "ssl_check_hostname" not in options:  # `address` sets it
        return None
    names = {**_FILES, **_PASSWORD}
    tls = {name: options[theirs] for name, theirs in names.items() if options.get(theirs)}
    tls["verify"] = options.get("ssl_cert_reqs") != "none"
    tls["check_hostname"] = tls["verify"] and options["ssl_check_hostname"]
    return tls


@sensitive_variables()  # error mails show variables
def check_files(conf: Configuration) -> None:
    """Read the files that the URL names.

    :raises ImproperlyConfigured: one is missing, or the password does not open it
    """
    options = address(conf.hosts).options
    tls = tls_of(options)
    if tls is None:
        return
    try:
        session_reaper.tls_context(tls)
    except OSError as error:  # SSLError is one
        named = [f"{name} {options[name]}" for name in _FILES.values() if name in options]
        raise ImproperlyConfigured(
            f"DISTLOCK[{conf.alias!r}]['HOSTS'] cannot be used: {error}. Check the files "
            f"({', '.join(named)}) and ssl_password."
        ) from error
