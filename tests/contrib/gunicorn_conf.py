"""As docs/how-to/metrics.md says, on a free port of loopback."""

from __future__ import annotations

from typing import Any

from prometheus_client import multiprocess

bind = "127.0.0.1:0"
workers = 3
threads = 2
graceful_timeout = 3
control_socket_disable = True


def child_exit(server: Any, worker: Any) -> None:  # noqa: ARG001 - gunicorn calls it
    multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
