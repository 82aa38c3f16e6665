"""The example shop under gunicorn, with operators who may do this and that."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

from django.contrib.admin.utils import quote

from distlock.keys.templates import znode_name
from example_project.shop.runner import WebServer, environment
from tests.kit.helpers import ROOT, raw_client

#: Who may do what. All may open the admin.
OPERATORS = {
    "chief": ["view_lock", "revoke_lock", "break_lock", "limit_lock"],
    "viewer": ["view_lock"],
    "revoker": ["view_lock", "revoke_lock"],
    "breaker": ["view_lock", "break_lock"],
    "guest": [],
}
NAMESPACE = "/example-shop"
LIST = "/admin/distlock/lock/"

SET_UP = """
import json, sys, time, django
django.setup()
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client
from distlock import minutes
from distlock.history import Event
from distlock.models import LockEvent
from example_project.shop.models import Product
call_command("migrate", verbosity=0)
call_command("fill_shelves")
Product.objects.update(quantity=100)
for kind in ("held", "lost"):
    event = Event(LockEvent.Kind(kind), "default", "job", time.time(), waited=100)
    event.row().save()
for kind in ("wait", "hold", "lost"):
    minutes.write({(int(time.time()) // 60, "default", "old:<job>", kind, 0): 1}, "default")
sessions = {}
for name, permissions in json.loads(sys.argv[1]).items():
    user = User.objects.create_user(name, is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="distlock", codename__in=permissions)
    )
    client = Client()
    client.force_login(user)
    sessions[name] = client.cookies["sessionid"].value
print(json.dumps(sessions))
"""


@dataclass(frozen=True, kw_only=True)
class Site:
    """One gunicorn, and where its locks are."""

    address: str
    hosts: str


SiteAt: TypeAlias = "Callable[[str], Site]"


class Sites:
    """The shop, as often as there are ensembles for its locks; all with one database."""

    def __init__(self, folder: Path) -> None:
        self._database = folder / "shop.sqlite3"
        with ExitStack() as undo:
            undo.enter_context(environment("DATABASE_URL", f"sqlite:///{self._database}"))
            undo.enter_context(environment("DJANGO_SETTINGS_MODULE", "example_project.settings"))
            made = subprocess.run(
                [sys.executable, "-c", SET_UP, json.dumps(OPERATORS)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            assert made.returncode == 0, made.stderr
            self.sessions: dict[str, str] = json.loads(made.stdout)

    @contextmanager
    def at(self, hosts: str) -> Iterator[Site]:
        """Run the shop with its locks on these servers."""
        with ExitStack() as started:
            with ExitStack() as stack:
                for name, value in (
                    ("DATABASE_URL", f"sqlite:///{self._database}"),
                    ("DJANGO_SETTINGS_MODULE", "example_project.settings"),
                    ("DISTLOCK_HOSTS", hosts),
                    ("LOCK_SECONDS", "10"),
                ):
                    stack.enter_context(environment(name, value))
                server = started.enter_context(WebServer(processes=1, threads=8))
            yield Site(address=f"http://127.0.0.1:{server.port}", hosts=hosts)

    def log_entries(self, key: str) -> list[tuple[str, int, str]]:
        """Return what operators have done to a lock: name, Django's flag, the message as JSON."""
        with closing(sqlite3.connect(self._database, timeout=20)) as connection:
            return connection.execute(
                "SELECT username, action_flag, change_message FROM django_admin_log "
                "JOIN auth_user ON auth_user.id = user_id WHERE object_id = ? "
                "ORDER BY django_admin_log.id",
                [f"default:{znode_name(key)}"],
            ).fetchall()


def chroot(hosts: str) -> str:
    """Make a place of its own for a site, and return the hosts that lead there."""
    place = f"/site-{uuid4()}"
    with raw_client(hosts) as client:
        client.create(place)
    return hosts + place


def detail(key: str) -> str:
    """Return the address of a lock's page."""
    return f"{LIST}{quote('default:' + znode_name(key))}/change/"
