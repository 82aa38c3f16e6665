"""What a node says of its owner is read with suspicion: anybody may have written it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlock.conf import Configuration
from distlock.keys.znodes import REVOKE, Participant, with_request
from distlock.owner.owner import current, label

PATH = "/distlock/stock:42/_c_9b0ca9d2-64ee-4ff0-8a4b-b0e0a4f0e4b7-lock-0000000007"
OURS = {"v": 1, "host": "web1", "pid": 41, "worker": "MainThread", "owner": "abc", "label": "GET /"}


def read(data: bytes) -> Participant:
    participant = Participant.from_node(PATH, data, token=99, session_id=0x1001)
    assert participant is not None
    assert (participant.path, participant.sequence) == (PATH, 7)
    assert (participant.token, participant.session_id) == (99, 0x1001)
    return participant


def said(**facts: Any) -> Participant:
    return read(json.dumps(OURS | facts).encode())


def test_our_own_node_is_read_back() -> None:
    with label("GET /buy/42"):
        participant = read(current().describe())
    assert not participant.peer
    assert participant.label == "GET /buy/42"
    assert participant.worker == "MainThread"
    assert participant.pid
    assert participant.owner_id == current().id
    assert participant.since is not None
    assert abs(participant.since.timestamp() - time.time()) < 5


def test_a_node_that_tells_only_its_owner_is_read_back() -> None:
    participant = read(current().describe(Configuration(node_data="owner")))
    assert not participant.peer
    assert participant.host == participant.label == ""
    assert str(participant) == current().id


HOSTILE = {
    "nothing": b"",
    "an address, as Curator writes": b"10.0.0.7",
    "bytes": bytes(range(256)),
    "a list": b"[1]",
    "a text": b'"v"',
    "null": b"null",
    "half an object": b'{"v":1,',
    "UTF-16": '{"v":1}'.encode("utf-16")[:9],
    "one megabyte of text": b'{"v":1,"host":"' + b"x" * 1_000_000 + b'"}',
    "one megabyte of noise": b"\xff" * 1_000_000,
    "deep nesting": b"[" * 1_000_000,
    "deep nesting of objects": b'{"v":' * 200_000,
    "a number of a megabyte": b'{"v":' + b"9" * 1_000_000 + b"}",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_data_that_is_not_ours_makes_a_peer(data: bytes) -> None:
    participant = read(data)
    assert participant.peer
    assert str(participant) == f"a peer with node {PATH.rpartition('/')[2]}"


def test_one_who_was_asked_to_leave_is_said_to_be() -> None:
    participant = read(REVOKE)
    assert participant.revoked
    assert not participant.peer
    assert (
        str(participant)
        == f"a participant with node {PATH.rpartition('/')[2]}, who was asked to leave"
    )
    assert not read(b"__REVOKE__ ").revoked
    assert not said().revoked
    ours = with_request(b'{"v": 1, "owner": "o1"}')
    assert str(read(ours)) == "o1, who was asked to leave"
    assert with_request(ours) == ours
    assert with_request(b"10.0.0.1") == REVOKE


@given(st.binary(max_size=200))
def test_no_data_at_all_makes_reading_fail(data: bytes) -> None:
    str(read(data)).encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*OURS, "since"]), JSON))
def test_no_object_at_all_makes_reading_fail(facts: dict[str, Any]) -> None:
    participant = read(json.dumps(facts).encode())
    texts: tuple[object, ...]
    texts = (participant.host, participant.worker, participant.owner_id, participant.label)
    assert all(isinstance(text, str) for text in texts)
    str(participant).encode()


@pytest.mark.parametrize("pid", [None, "41", 4.5, True, [], {}])
def test_a_pid_of_a_wrong_type_counts_as_unknown(pid: Any) -> None:
    assert said(pid=pid).pid is None


@pytest.mark.parametrize(
    "since",
    [None, "now", "2026-01-01", [], float("nan"), float("inf"), -float("inf"), 1e300, 10**300],
)
def test_a_time_that_is_none_counts_as_unknown(since: Any) -> None:
    assert said(since=since).since is None


@pytest.mark.parametrize("name", ["host", "worker", "owner", "label"])
@pytest.mark.parametrize(
    "text",
    ["\ud800", "a\nERROR forged line", "\r", "\x1b[2J", "\0", "\u202etxt.exe", "\u2028"],
    ids=ascii,
)
def test_a_text_can_be_printed_and_logged_without_harm(name: str, text: str) -> None:
    """Someone else's node must not break our message, nor forge a line of our log."""
    participant = said(**{name: text})
    shown = getattr(participant, {"owner": "owner_id"}.get(name, name))
    assert shown.isprintable()
    str(participant).encode()


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({}, "web1:41 MainThread (GET /)"),
        ({"label": ""}, "web1:41 MainThread"),
        ({"host": ""}, "abc (GET /)"),
        ({"worker": "", "label": ""}, "web1:41"),
    ],
)
def test_a_participant_is_named_in_a_few_words(facts: dict[str, Any], text: str) -> None:
    assert str(said(**facts)) == text
