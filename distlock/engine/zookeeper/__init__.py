"""The connection to ZooKeeper: kazoo's client and its requests.

`client` and `connection` bend kazoo, with `requests`, which holds the requests that kazoo has no
API for, and `handler`, which stands in for kazoo's threads. `messages` packs the four requests of
every hold. `ensemble` asks the servers of ``HOSTS`` one by one, and `shared_client`
lends the session to users. `settings` and `engine` are what the code above sees.
"""

from __future__ import annotations
