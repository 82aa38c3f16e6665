"""The servers that a session runs on (`zookeeper`, `redis`, `postgresql`), and what these share.

A client stays connected, and has one session after the other. `protocol` is the seam: what a
session uses of a client. The outcome of a request comes to a `reply`, and `errors` names those that
failed.

Every thread writes its own requests to the `wire`; one thread a connection reads (`serving`), and
`guard` keeps it alive. `deadline` measures until when the servers cannot have ended the session.
The `timer` calls what is due, on one thread for the process. `calls` runs a call that waits,
blocking or awaiting. `session_reaper` is a program of its own, which needs only the standard
library and `distlock.jute`.
"""

from __future__ import annotations
