"""The fields of log records, for formatters that write JSON."""

from __future__ import annotations

import logging

import pytest

from distlock import LockLost, zk_lock, zk_locked
from distlock.session.registry import session_for
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import eventually
from tests.kit.tools import PATIENCE, expire

pytestmark = pytest.mark.usefixtures("tree")


def fields(record: logging.LogRecord) -> dict[str, object]:
    """What the record has that a plain one has not."""
    plain = vars(logging.makeLogRecord({})).keys() | {"message"}
    return {name: value for name, value in vars(record).items() if name not in plain}


@pytest.mark.usefixtures("holder")
def test_a_refusal_says_which_lock_and_for_how_long(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "distlock"):
        assert not zk_lock("key").acquire(timeout=0.1)
    (record,) = [record for record in caplog.records if "busy" in record.message]
    said = fields(record)
    waited = said.pop("waited")
    assert isinstance(waited, float)
    assert waited >= 0.1
    assert said == {
        "key": "key",
        "using": "default",
        "template": "",
        "recipe": "Mutex",
        "outcome": "busy",
    }


def test_a_loss_says_which_hold(zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture) -> None:
    holds = []

    @zk_locked("stock:<sku>")
    def deduct(sku: int) -> None:
        lock = zk_lock(f"stock:{sku}")
        with lock as hold:
            holds.append(hold)
            expire(zookeeper.hosts, session_for())
            eventually(lambda: "was lost" in caplog.text, PATIENCE, "the line in the log")

    with pytest.raises(LockLost):
        deduct(42)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert fields(record) == {
        "key": "stock:42",
        "using": "default",
        "template": "stock:<sku>",
        "recipe": "Mutex",
        "outcome": "lost",
        "reason": "session",
        "token": holds[0].token,
        "path": holds[0].path,
    }
