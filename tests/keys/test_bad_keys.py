"""Keys that nobody should send, on a real server: they lock, or are refused before they reach it.

A lone surrogate would kill kazoo's connection thread, a key of two megabytes would make the
connection flap, a slash would plant a node that jams another lock.
"""

from __future__ import annotations

import pytest

from distlock import LockKeyError, zk_lock
from distlock.owner.owner import label
from distlock.session.registry import session_for
from distlock_chaos.server import ZooKeeper
from tests.kit.helpers import raw_client

BAD_KEYS = {
    "slash": "/",
    "absolute": "/distlock/stock",
    "dot": ".",
    "parent": "..",
    "way out": "../../zookeeper",
    "NUL": "a\0b",
    "controls": "\x01\x1f\x7f\x9f\r\n",
    "reserved": "zookeeper",
    "NFD": "e\u0301",
    "10,000 characters": "x" * 10_000,
    "2,000,000 characters": "é" * 2_000_000,
    "emoji": "🦊👩\u200d🚀",
    "percent signs": "%2F%%",
    "private use": "\ue000\uffff\ufffe",
    "right to left": "\u202etxt",
    "a node of ours": "_c_0-lock-0000000000",
    "markup": "<<script>>alert(1)</script>",
}


@pytest.mark.usefixtures("distlock_settings")
def test_a_strange_key_never_leaves_the_namespace(zookeeper: ZooKeeper, namespace: str) -> None:
    with raw_client(zookeeper.hosts) as client:
        before = client.exists("/zookeeper")
        for key in BAD_KEYS.values():
            with zk_lock(key) as hold:
                assert hold.path.startswith(f"{namespace}/")
                assert hold.path.count("/") == namespace.count("/") + 2
                assert client.exists(hold.path)
        assert client.exists("/zookeeper") == before


@pytest.mark.usefixtures("distlock_settings")
def test_a_lone_surrogate_is_refused_in_the_callers_thread_and_the_session_works_on() -> None:
    with zk_lock("before") as hold:
        before = session_for().id
        with pytest.raises(LockKeyError, match="surrogates not allowed"):
            zk_lock("stock:\ud800")
        hold.verify()
    with zk_lock("after") as hold:
        hold.verify()
    assert session_for().id == before


@pytest.mark.usefixtures("distlock_settings")
def test_a_label_with_a_lone_surrogate_does_no_harm() -> None:
    with label("GET /\udcff"), zk_lock("labelled") as hold:
        hold.verify()
        holder = zk_lock("labelled").holder()
        assert holder is not None
        str(holder).encode()
