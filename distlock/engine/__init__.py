"""The servers that a session runs on: `zookeeper` or `redis`, and the code that both share.

A client stays connected, and has one session after the other. `Session` uses of it only what has a
docstring in `zookeeper.client` and `zookeeper.requests`; `redis.client` and the client in memory of
`distlock.testing` have the same. Outcomes come to a `reply`, and `errors` names them.

Every thread writes its own requests to the `wire`; one thread a connection reads (`serving`), and
`guard` keeps it alive. `deadline` measures until when the servers cannot have ended the session.
`bulk_reads` reads many nodes against one deadline. The `timer` calls what is due, on one thread for
the process. `calls` runs a call that waits, blocking or awaiting. `session_reaper` is a program of
its own, which needs only the standard library.
"""

from __future__ import annotations
