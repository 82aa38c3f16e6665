"""Checks for django-health-check that the lock servers answer this process.

::

    HealthCheckView.as_view(checks=["distlock.contrib.health_check.Locks", …])
"""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from django.core.exceptions import ImproperlyConfigured

from distlock.exceptions import LockUnavailable
from distlock.session.programs import Driver, asking
from distlock.session.registry import session_for

from . import extra

with extra("django-health-check"):
    from health_check.base import HealthCheck
    from health_check.exceptions import ServiceUnavailable


@dataclasses.dataclass
class Locks(HealthCheck):  # type: ignore[misc]  # it has no types
    """Sends a lock's heartbeat to the servers, over the session of this process.

    It opens the session if there is none yet, and reconnects by itself as locks do. A server that
    is cut off from its leader does not answer. The page shows neither hosts nor reasons; the log
    has them as the cause of the error.

    :param using: the alias in ``DISTLOCK``
    :param timeout: the time to wait for the answer
    """

    using: str = "default"
    timeout: timedelta = dataclasses.field(default=timedelta(seconds=3), repr=False)

    async def run(self) -> None:
        """Return when they have answered.

        :raises ServiceUnavailable: it did not answer, or the settings are wrong
        """
        seconds = self.timeout.total_seconds()
        try:
            session = session_for(self.using)
            proof = asking(lambda done: session.prove(lambda proven: done(proven, None)))
            proven = await Driver(session, "", seconds).call(proof).arun()
        except ImproperlyConfigured as error:
            raise ServiceUnavailable("DISTLOCK is not set up correctly") from error
        except LockUnavailable as error:
            raise ServiceUnavailable(f"No answer in {seconds:g} s") from error
        if not proven:
            raise ServiceUnavailable("The connection was lost") from session.unavailable("")
