"""Says which settings PostgreSQL has, without psycopg, which may not be installed.

`distlock.engine.protocol.Settings` tells of the names without an underscore.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage

from distlock.engine.hosts import DATABASE, mistake

NAME: Final = "PostgreSQL"
EXAMPLE: Final = 'an alias of DATABASES on PostgreSQL 13 or newer such as "database:default"'
RULES: Final[Mapping[str, tuple[Any, str]]] = {}
UNKNOWN: Final[Mapping[str, str]] = {
    "AUTH": "The user and the password are in DATABASES.",
    "ACL": "Rights are those of the tables distlock_…: GRANT and REVOKE.",
    "TLS": "TLS is an option of the database in DATABASES, such as sslmode.",
    "STRICT": "The server proves each session itself.",
    "REPLICAS": "Set synchronous_standby_names on the server.",
}


def mistake_in(hosts: Any) -> str | None:
    alias = hosts.removeprefix(DATABASE)
    if alias not in settings.DATABASES:
        return f"names the database {alias!r}, which is not in DATABASES"
    engine = settings.DATABASES[alias].get("ENGINE", "")
    if re.search("mysql|oracle|mssql|dummy", engine):
        return f"names the database {alias!r}, whose engine is {engine}: locks need PostgreSQL"
    return None


def problems(where: str, options: Mapping[Any, Any]) -> Iterator[CheckMessage]:
    if find_spec("psycopg") is None:
        yield mistake(
            f"{where}['HOSTS'] is a database on PostgreSQL, but psycopg 3 is not installed.",
            "Install django-distlock[postgresql].",
        )


def problems_in_deployment(where: str, options: Mapping[Any, Any]) -> Iterator[CheckMessage]:
    yield from ()


def chroot(hosts: str) -> str:
    return ""
