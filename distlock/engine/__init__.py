"""The connection to ZooKeeper: kazoo's client, its requests, and how long a session is safe.

`client` and `connection` are the only modules that know kazoo, with `requests`, which holds the
requests that kazoo has no API for, and `handler`, which stands in for kazoo's threads. Every thread
writes its own requests to the `wire`; one thread a connection reads. `deadline` measures until when
the server cannot have expired the session. `credentials` and `roles` read TLS, SASL and ACLs from
the settings, and `ensemble` the servers, which it asks one by one; `bulk_reads` reads many nodes
against one deadline. The `timer` calls what is due, on one thread for the process. `calls` runs a
call that waits, blocking or awaiting. `session_reaper` is a program of its own, which needs only
the standard library.
"""

from __future__ import annotations
