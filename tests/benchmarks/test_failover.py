from __future__ import annotations

from benchmarks.failover import FAULTS, Outcome, _overlap, row


def outcome(*, kept: bool = False, overlap: float = 0.0) -> Outcome:
    return Outcome(False, kept, 4.0, overlap, 8.0)


def test_two_holders_are_counted_while_both_believe() -> None:
    assert _overlap([[0, 3], [8, 9]], [[3, 5]]) == 0
    assert _overlap([[0, 4], [5, 9]], [[3, 6]]) == 2


def test_a_row_counts_trials() -> None:
    outcomes = [outcome(kept=True), outcome(overlap=1.2), outcome(overlap=0.4)]
    assert row(FAULTS["killed"], 1, outcomes) == (
        "| primary killed | 1 | 3 | 0 | 1 | 2 (up to 1.2 s) | 8.0 s |"
    )
    assert " | 0 | 8.0 s |" in row(FAULTS["killed"], 1, [outcome()])
