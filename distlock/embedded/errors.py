"""The errors with which a server refuses requests."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """ZooKeeper's numbers of errors (``KeeperException.Code``)."""

    ROLLED_BACK = 0
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    NO_WATCHER = -121


class Refused(Exception):
    """A server refuses a request; `code` says why."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code
