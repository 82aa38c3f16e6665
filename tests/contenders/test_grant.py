"""A grant holds until it is lost, for good, or left; its listeners hear how it changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from distlock import lock_at_risk, lock_lost, lock_safe
from distlock.contenders.grant import Grant
from distlock.engine.deadline import SessionDeadline, now
from distlock.queue.events import Node

if TYPE_CHECKING:
    from django.dispatch import Signal

AN_HOUR = 3600.0


class Granted(Grant):
    """A grant of a session that does as it is told; it notes what its listeners hear."""

    def __init__(self) -> None:
        deadline = SessionDeadline()
        deadline.renew(now(), AN_HOUR)
        session: Any = SimpleNamespace(id=7, deadline=deadline)
        super().__init__(session)
        self.node = Node("_c_a-lock-0000000042", 1, 7, 42)
        self.epoch = deadline.epoch
        self.granted = True
        self.heard: list[Signal] = []
        self.listen(self.heard.append)

    def leave(self) -> None:
        self.left = True


@pytest.fixture
def grant() -> Granted:
    return Granted()


def renew(grant: Granted) -> None:
    grant.session.deadline.renew(now(), AN_HOUR)


def test_it_holds_while_the_session_lives(grant: Granted) -> None:
    assert grant.standing
    assert not grant.lost
    grant.report()
    assert grant.heard == []


def test_a_gap_in_the_deadline_loses_it_for_good(grant: Granted) -> None:
    grant.session.deadline.end()
    renew(grant)
    assert grant.lost
    assert grant.lost_reason == "session"


def test_another_session_loses_it_for_good(grant: Granted) -> None:
    grant.session.id = 8
    assert not grant.standing
    assert grant.lost
    grant.session.id = 7
    assert grant.lost


def test_the_first_reason_of_a_loss_stays(grant: Granted) -> None:
    grant.lose()
    grant.session.deadline.end()
    assert grant.lost
    assert grant.lost_reason == "broken"


def test_what_was_left_in_time_is_not_lost_afterwards(grant: Granted) -> None:
    grant.leave()
    grant.session.deadline.end()
    grant.lose()
    assert not grant.lost
    grant.report()
    assert grant.heard == []


def test_a_loss_is_heard_of_once_and_last(grant: Granted) -> None:
    grant.lose()
    for _ in range(2):
        grant.report()
    grant.session.deadline.cut()
    grant.report()
    assert grant.heard == [lock_lost]


def test_a_loss_before_the_owner_left_is_heard_of_after_it(grant: Granted) -> None:
    grant.lose()
    grant.leave()
    grant.report()
    assert grant.heard == [lock_lost]


def test_each_change_of_the_risk_is_heard_of_once(grant: Granted) -> None:
    for _ in range(2):
        grant.session.deadline.cut()
        for _ in range(2):
            grant.report()
        assert grant.at_risk
        renew(grant)
        for _ in range(2):
            grant.report()
        assert not grant.at_risk
    assert grant.heard == [lock_at_risk, lock_safe] * 2


def test_one_who_listens_no_more_hears_nothing(grant: Granted) -> None:
    grant.unlisten(grant.heard.append)
    grant.unlisten(grant.heard.append)  # without harm
    grant.lose()
    grant.report()
    assert grant.heard == []
