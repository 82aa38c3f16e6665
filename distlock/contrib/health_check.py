"""A check for django-health-check: does ZooKeeper answer this process.

::

    HealthCheckView.as_view(checks=["distlock.contrib.health_check.ZooKeeper", …])
"""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import ImproperlyConfigured

from distlock.session.registry import session_for

from . import extra

with extra("health"):
    from health_check.base import HealthCheck
    from health_check.exceptions import ServiceUnavailable

if TYPE_CHECKING:
    from concurrent.futures import Future

    from distlock.session.session import Session

_TIMEOUT: Final = timedelta(seconds=3)


@dataclasses.dataclass
class ZooKeeper(HealthCheck):  # type: ignore[misc]  # it has no types
    """Asks the ensemble for what a lock's heartbeat asks for, over the session of this process.

    It opens the session where there is none yet, and then reconnects by itself as locks do. A
    server that is cut off from its leader does not answer. Neither hosts nor reasons are shown;
    they are the cause of what is raised, for the log.

    :param using: the alias in ``DISTLOCK``
    :param timeout: how long to wait for the answer
    """

    using: str = "default"
    timeout: timedelta = dataclasses.field(default=_TIMEOUT, repr=False)

    async def run(self) -> None:
        """Return when the ensemble has answered.

        :raises ServiceUnavailable: it has not, or the settings are wrong
        """
        seconds = self.timeout.total_seconds()
        try:
            session = session_for(self.using)
            answer = asyncio.wrap_future(_proof(session))
            proven = await asyncio.wait_for(answer, seconds)
        except ImproperlyConfigured as error:
            raise ServiceUnavailable("DISTLOCK is not set up correctly") from error
        except asyncio.TimeoutError:
            raise ServiceUnavailable(f"No answer in {seconds:g} s") from session.unavailable("")
        if not proven:
            raise ServiceUnavailable("The connection was lost") from session.unavailable("")


def _proof(session: Session) -> Future[Any]:
    """Return what becomes true when the leader has answered, and false where it cannot."""

    def prove(done: Any) -> None:
        session.prove(partial(_pass_on, done))

    return session.ask(prove)


def _pass_on(done: Any, proven: bool) -> None:
    done(proven, None)
