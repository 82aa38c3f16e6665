"""The site as gunicorn's ``--preload`` meets it: locks were used before the workers were forked."""

from __future__ import annotations

import os

from distlock import zk_lock
from tests.testproject.wsgi import application

__all__ = ["application"]

PARENT_KEY = "parent"

with zk_lock("counter:before"):
    pass
# The parent goes on holding this one, and no worker may enter or free it.
zk_lock(PARENT_KEY).acquire()
os.environ["PARENT_PID"] = str(os.getpid())
