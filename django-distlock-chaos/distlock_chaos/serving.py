"""Real servers for `manage.py distlock server`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError

from .install import ServerError, ServerNotInstalled, WrongHome
from .server import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def serve(options: Mapping[str, Any], ready: Callable[[str, str], None], *, or_not: bool) -> None:
    """Run servers until an exception, such as of Ctrl-C.

    :param ready: is called with their addresses, and with a few words on them
    :param or_not: just return where ZooKeeper or Java is not installed
    :raises CommandError: they do not start, or have ended
    """
    nodes, port, data_dir = options["nodes"], options["port"] or None, options["data_dir"]
    try:
        with ZooKeeper(nodes, port=port, data_dir=data_dir) as zookeeper:
            size = "1 node" if nodes == 1 else f"{nodes} nodes"
            ready(zookeeper.hosts, f"{size}, data in {zookeeper.data_dir}")
            for server in zookeeper.servers:
                server.wait()
            raise CommandError(f"ZooKeeper ended by itself.\n{zookeeper.servers[0].log_tail()}")
    except (ServerError, ValueError, OSError) as error:
        missing = isinstance(error, ServerNotInstalled) and not isinstance(error, WrongHome)
        if not (missing and or_not):
            raise CommandError(str(error)) from error
