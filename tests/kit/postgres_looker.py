"""The tree in PostgreSQL from outside, in the words of kazoo's client."""

from __future__ import annotations

import psycopg

from distlock.engine.postgresql.server import alias_of

from .redis_looker import RedisLooker, Watches


class PostgresLooker(RedisLooker):
    """Looks at a tree and changes it, over a session of its own."""

    def watches(self) -> Watches:
        with psycopg.connect(alias_of(self._conf)) as server:
            rows = server.execute("SELECT path, session FROM distlock_watch").fetchall()
        return {(path or "/", session) for path, session in rows}
