"""The tree of locks as the harness sees it, over a session of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from distlock.conf import Configuration
from distlock.engine.errors import NoNode, NotEmpty
from distlock.exceptions import LockUnavailable
from distlock.session.session import Session

if TYPE_CHECKING:
    from typing_extensions import Self

#: Where the locks of all runs are.
NAMESPACE: Final = "/chaos"
#: How long the harness waits for one answer, in seconds.
ANSWER_SECONDS: Final = 1.0
#: How long it waits for the connection, in seconds.
CONNECT_SECONDS: Final = 10.0


class Tree:
    """Reads and deletes nodes; raises `LockUnavailable` where there is no answer.

    :param hosts: as in ``HOSTS``
    """

    def __init__(self, hosts: str, namespace: str, session_timeout: float) -> None:
        self.namespace = namespace
        self._conf = Configuration(
            alias="chaos", hosts=hosts, namespace=namespace, session_timeout=session_timeout
        )

    def __enter__(self) -> Self:
        self._session = Session(self._conf)
        deadline = time.monotonic() + CONNECT_SECONDS
        while not self._session.connected and time.monotonic() < deadline:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def names(self, path: str) -> list[str]:
        """Return the names of the children; none if the node is not there."""
        try:
            return list(self._ask(self._session.children, path))
        except NoNode:
            return []

    def data(self, path: str) -> bytes | None:
        """Return the data of a node, None if it is not there."""
        try:
            data: bytes = self._ask(self._session.read, path)[0]
        except NoNode:
            return None
        return data

    def delete(self, paths: Sequence[str]) -> bool:
        """Delete all or none; return whether they are gone."""
        try:
            self._ask(self._session.transact, lambda make: [make.deletion(path) for path in paths])
        except NoNode:
            return False
        except LockUnavailable as error:
            if isinstance(error.__cause__, NotEmpty):
                return False
            raise
        return True

    def _ask(self, method: Callable[..., None], *args: Any) -> Any:
        return self._session.call(method, *args, timeout=ANSWER_SECONDS, key="")
