"""`manage.py distlock set-acl`: gives every node under the namespace the ACL of the settings."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from distlock.engine.bulk_reads import Reads
from distlock.engine.errors import NodeExists
from distlock.keys.znodes import clipped, printable
from distlock.management.access import Audit, audit, create_namespace, set_acls
from distlock.management.output import NOTHING, add_options, exit_statuses, write_json
from distlock.rules import REDIS
from distlock.session.registry import session_for

HELP = "Create the namespace, and give every node under it the ACL of the settings."


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only show what would change")
    add_options(parser)


def handle(command: BaseCommand, options: dict[str, Any]) -> None:
    refused: list[str] = []
    with exit_statuses():
        session = session_for(options["using"])
        if session.conf.engine == REDIS:
            raise ImproperlyConfigured(
                f"DISTLOCK[{options['using']!r}] uses Redis, which knows no ACL of single locks. "
                "Give distlock a user of its own there, with a password and the keys of NAMESPACE."
            )
        reads = Reads(session, options["budget"])
        reads.connect()
        found = audit(reads)
        if not options["dry_run"]:
            if not found.exists:
                found = _created(reads)
            refused = set_acls(reads, found.wrong)
    changed = [path for path in found.wrong if path not in set(refused)]
    root = reads.session.root
    if options["json"]:
        document = {
            "namespace": clipped(root),
            "dry_run": options["dry_run"],
            "created": not found.exists,
            "changed": [clipped(path) for path in changed],
            "refused": [clipped(path) for path in refused],
            "unread": [clipped(path) for path in found.unread],
        }
        write_json(command, document)
    else:
        create, change = (
            ("Would create", "Would change") if options["dry_run"] else ("Created", "Changed")
        )
        if not found.exists:
            command.stdout.write(f"{create} {printable(root)}")
        for path in changed:
            command.stdout.write(f"{change} {printable(path)}")
        command.stdout.write(f"{len(found.wrong)} of {found.looked_at} nodes had another ACL.")
    if refused or found.unread:
        paths = "\n".join(f"  {printable(path)}" for path in (refused + found.unread)[:20])
        raise CommandError(
            f"{len(refused)} nodes could not be changed, {len(found.unread)} not be read. Run it "
            "with the credentials of an administrator of these nodes, beside yours in AUTH, or "
            f"with a longer --budget:\n{paths}",
            returncode=NOTHING,
        )


def _created(reads: Reads) -> Audit:
    """Create the namespace, and return that it did not exist; look again if somebody was faster."""
    try:
        create_namespace(reads)
    except NodeExists:
        return audit(reads)
    return Audit(exists=False, looked_at=0, wrong=[], unread=[])
