"""All of kazoo that distlock uses: no other module imports it.

`PRIVATE` lists the private names in use, most of them in `engine.zookeeper`: kazoo has no other way
to carry out requests in the thread that asks, and to complete them in the one that reads. A test
compares the list with the code and with the installed kazoo.
"""

from __future__ import annotations

from typing import Final

from kazoo.client import CLOSED_STATES, KazooClient
from kazoo.exceptions import (
    EXCEPTIONS,
    APIError,
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    UnimplementedError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol import serialization
from kazoo.protocol.connection import (
    CHILD_EVENT,
    CLOSE_RESPONSE,
    DELETED_EVENT,
    EVENT_TYPE_MAP,
    PING_XID,
    WATCH_XID,
    ConnectionDropped,
    ConnectionHandler,
)
from kazoo.protocol.serialization import (
    SASL,
    Auth,
    CheckVersion,
    CloseInstance,
    Connect,
    Create,
    Exists,
    GetACL,
    GetChildren,
    GetChildren2,
    GetData,
    PingInstance,
    SetData,
    Sync,
    Transaction,
)
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent, ZnodeStat
from kazoo.retry import ForceRetryError, KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, Id

#: By the class that defines them, with the reason.
PRIVATE: Final[dict[type, dict[str, str]]] = {
    KazooClient: {
        "_call": "a user's client sends by it, through our connection",
        "_child_watchers": "the watchers, forgotten when the server's watch is removed",
        "_conn_retry": "the pauses of a connection, which our connection takes over",
        "_connection": "the client makes its own, and ours takes its place",
        "_data_watchers": "as `_child_watchers`",
        "_live": "the event that `start_async()` returns, of a client whose owner starts it",
        "_make_state_change": "a user's listeners run on a thread of their own",
        "_notify_pending": "what was queued in the instant of a loss fails at once",
        "_pending": "the requests without an answer: our loop reads the answers",
        "_queue": "the requests not sent yet: our threads write them themselves",
        "_session_callback": "the only place that hears of each state on the connection thread",
        "_session_id": "`client_id` is None without a connection, and the id outlives that",
        "_session_passwd": "the reaper of killed processes needs it",
        "_state": "the state behind `_session_callback`",
        "_stopped": "`stop()` may wait for ten seconds and more",
    },
    ConnectionHandler: {
        "_connect": "returns the timeouts that the server granted, which kazoo only logs",
        "_connect_loop": "kazoo's ends with an error in a pause",
        "_connection_routine": "the thread, which the end waits for",
        "_expand_client_hosts": "says whether a host name could not be resolved",
        "_invoke": "each connect, the ping after a long loss, a refused session's good-bye",
        "_read": "reads exactly so many bytes while connecting",
        "_read_sock": "one end of the pair of sockets that wakes the thread",
        "_read_socket": "our loop takes its place: few calls, and many replies at a time",
        "_read_watch_event": "calls the watchers of a user's client",
        "_send_ping": "pings are ours, and renew the deadline",
        "_socket": "the connection of now",
        "_socket_error_handling": "the only place that sees why a connection ended",
        "_write": "sends while connecting",
        "_write_sock": "the other end of that pair",
    },
}
