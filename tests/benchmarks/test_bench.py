"""`benchmarks.bench`: its arithmetic, its witness, and a tiny run of two of its contenders.

The comparison itself takes minutes and is a command: ``make bench``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import pytest

from benchmarks import pages
from benchmarks.bench import page, run, targets, witness, works
from benchmarks.bench.__main__ import PAGE
from benchmarks.bench.figures import Series, Spread, figure, jain, ratio
from benchmarks.bench.pool import Done, Failed, Pool, Process
from benchmarks.bench.run import Results
from benchmarks.bench.servers import Servers
from benchmarks.bench.targets import Verdict
from benchmarks.bench.witness import Witness
from benchmarks.bench.worker import Order
from distlock_chaos.install import ServerNotInstalled
from tests.kit.helpers import eventually, raw_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# --- the witness ---------------------------------------------------------------------------------


@pytest.fixture
def seen(tmp_path: Path) -> Path:
    path = tmp_path / "witness"
    witness.create(path, keys=2)
    return path


def test_holders_one_after_another_do_not_overlap_and_are_counted(seen: Path) -> None:
    first, second = Witness(seen, 1), Witness(seen, 2)
    for holder in (first, second, second):
        holder.enter(1)
        holder.leave(1)
    assert first.overlaps + second.overlaps == 0
    assert witness.counted(seen) == 3
    assert len(second.idle) == 1, "only a hand-off to another has an idle time"
    assert second.idle[0] >= 0


def test_two_holders_at_once_are_seen_and_lose_an_update(seen: Path) -> None:
    first, second = Witness(seen, 1), Witness(seen, 2)
    first.enter(0)
    second.enter(0)
    first.leave(0)
    second.leave(0)
    assert first.overlaps
    assert second.overlaps
    assert witness.counted(seen) == 1


def test_holders_of_two_keys_do_not_overlap(seen: Path) -> None:
    first, second = Witness(seen, 1), Witness(seen, 2)
    first.enter(0)
    second.enter(1)
    first.leave(0)
    second.leave(1)
    assert first.overlaps + second.overlaps == 0
    assert witness.counted(seen) == 2


# --- the figures ---------------------------------------------------------------------------------


def test_jains_index_is_one_for_equal_shares_and_one_nth_when_one_has_all() -> None:
    assert jain([7, 7, 7, 7]) == 1
    assert jain([9, 0, 0, 0]) == 0.25
    assert jain([0, 0]) == 0


def test_a_ratio_compares_round_with_round() -> None:
    # The second round was busy, for both.
    assert ratio([1.0, 10.0, 1.25], [2.0, 20.0, 2.0]) == Spread(0.5, 0.5, 0.5625)


def test_one_round_has_no_spread() -> None:
    assert Spread.of([3.0]) == Spread(3.0, 3.0, 3.0)


DONE = Done(
    entries=10,
    in_time=[5, 4],
    cycles=[0.09, 0.11],
    overlaps=0,
    idle=[0.001, 0.003],
    processor=0.02,
    requests=30,
)


@pytest.mark.parametrize(
    ("work", "expected"),
    [(works.UNCONTENDED, 100.0), (works.THREADS, 18.0), (works.HANDED_ON, 2.0)],
    ids=lambda value: getattr(value, "figure", None),
)
def test_what_is_shown_of_a_work(work: works.Work, expected: float) -> None:
    assert figure(work, DONE, seconds=0.5) == pytest.approx(expected)


def test_requests_and_processor_time_are_those_of_each_time_that_it_took_the_lock() -> None:
    series = Series()
    series.add(works.UNCONTENDED, DONE, seconds=0.5)
    assert series.requests == [3.0]
    assert series.processor == [2.0]


def test_a_few_turns_say_nothing_about_fairness() -> None:
    series = Series()
    for entries in (19, 20):
        done = replace(DONE, entries=entries, in_time=[entries // 2, entries // 2])
        series.add(works.THREADS, done, seconds=0.5)
    assert series.fairness == [1.0]


# --- what was to be reached ----------------------------------------------------------------------


def results(ours: list[float], theirs: list[float], work: works.Work) -> Results:
    of = {
        name: Series(figures, processor=figures)
        for name, figures in {"distlock": ours, "kazoo Lock": theirs, "Curator": theirs}.items()
    }
    return Results(rounds=len(ours), seconds=1.0, series={work.name: of})


def test_a_target_is_met_or_missed_or_was_not_measured() -> None:
    judged = targets.judge(results([12.0, 14.0, 12.0], [1.0, 2.0, 1.0], works.THREADS))
    found = {each.what: each for each in judged}
    assert found["8 threads of one process, strict FIFO: rate to kazoo's `Lock`"].met is True
    assert found["8 processes: rate to kazoo's `Lock`"].met is None
    assert all(each.measured is None for each in judged if "handoff" in each.what)


def test_time_is_to_be_less_and_acquisitions_are_to_be_more() -> None:
    def met(median: float, bound: str) -> bool | None:
        return Verdict("", Spread(median, 0.5, 20.0), bound).met

    assert met(0.6, "≤ 0.6") is True
    assert met(0.61, "≤ 0.6") is False
    assert met(5.0, "≥ 5") is True
    assert met(4.9, "≥ 5") is False
    assert met(4.9, "") is None, "for information"


def test_a_run_without_anything_has_measured_no_target() -> None:
    judged = targets.judge(Results(rounds=1, seconds=1.0))
    assert [each.measured for each in judged] == [None] * len(targets.TARGETS)


def test_every_target_is_found_in_a_whole_run() -> None:
    names = [contender.name for contender in works.ALL]
    series = {
        work.name: {name: Series([2.0], fairness=[1.0], processor=[2.0]) for name in names}
        for part in works.WORKS.values()
        for work in part
    }
    ours = works.DISTLOCK.name
    whole = Results(
        rounds=1,
        seconds=1.0,
        series=series,
        reentry={"distlock": [2.0], "RLock": [1.0]},
        imports={"distlock": [1.0], "kazoo and Django": [1.0]},
        trips={ours: {works.UNCONTENDED.name: 1.04, works.REFUSED.name: 1.0}},
        crowds={10: [1.0], 1000: [5.0]},
        left=0,
    )
    judged = targets.judge(whole)
    assert all(each.measured for each in judged)
    assert [each.measured for each in judged if "1,000" in each.what] == [Spread(5.0, 5.0, 5.0)]
    assert "1,000" in page.text(whole)


def test_an_overlap_is_a_target_that_was_missed() -> None:
    found = results([5.0], [1.0], works.THREADS)
    found.series[works.THREADS.name]["distlock"].overlaps = 1
    assert [each.met for each in targets.judge(found) if "overlaps" in each.what] == [False]


def test_the_page_says_what_was_missed_and_what_was_not_measured() -> None:
    found = results([2.0, 2.0, 2.0], [1.0, 1.0, 1.0], works.THREADS)
    found.missing["django-pglock"] = "PostgreSQL was not found."
    found.series[works.THREADS.name]["distlock"].fairness = [0.5]
    found.series[works.THREADS.name]["kazoo Lock"].fairness = [1.0]
    found.series[works.THREADS.name]["Curator"].fairness = [1.0]
    text = page.ratios(found) + page.text(found)
    assert "| 2.00 |  | ≥ 12 | **missed** |" in text
    assert "| distlock | 2.00 |  | 1 |  | 2.00 | 0.500 | 0 |" in text
    assert "| kazoo Lock | 1.00 |  | 0.50 |  | 1.00 | 1.000 | 0 |" in text
    assert "Not measured: django-pglock. PostgreSQL was not found." in text


def test_waiters_that_fail_do_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> NoReturn:
        raise TimeoutError("Something did not come.")

    monkeypatch.setattr(run, "line", fail)
    found = run.Run(1, 0.1, 1, [works.DISTLOCK.name], tmp_path).go(["crowds"])
    assert "Failed: many waiters: Something did not come." in page.text(found)


@pytest.mark.parametrize("block", ["targets", "figures"])
def test_a_run_replaces_its_block_of_the_page_and_nothing_else(block: str, tmp_path: Path) -> None:
    copy = tmp_path / "page.md"
    copy.write_text(PAGE.read_text())
    pages.fill(copy, "| new |\n", block)
    begin, end = f"<!-- {block}: begin -->", f"<!-- {block}: end -->"
    before, _, rest = PAGE.read_text().partition(begin)
    _, _, after = rest.partition(end)
    assert copy.read_text() == f"{before}{begin}\n\n| new |\n\n{end}{after}"
    assert after


@pytest.mark.parametrize(
    ("value", "text"), [(12345.6, "12,346"), (98.76, "98.8"), (1.234, "1.23"), (0.0123, "0.012")]
)
def test_a_number_has_three_digits_that_count(value: float, text: str) -> None:
    assert page.number(value) == text


# --- the processes -------------------------------------------------------------------------------


def test_an_order_arrives_as_it_was_given() -> None:
    order = Order("distlock", 2, 1, "k-", 123456789012345, 0.5, 0, 0.002, 0, "/a/witness", 1)
    assert Order.parse(order.words().split()) == order


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    try:
        with Servers(others=False) as servers:
            yield servers
    except ServerNotInstalled as error:
        pytest.skip(str(error))


def test_contenders_of_two_processes_exclude_each_other_and_are_counted(
    servers: Servers, tmp_path: Path
) -> None:
    work = replace(works.PROCESSES, processes=2, threads=2)
    with Pool(servers, tmp_path) as pool:
        pool.run(works.DISTLOCK, work, 0.2)
        for contender in (works.DISTLOCK, works.KAZOO):
            done = pool.run(contender, work, 0.5)
            assert done.entries >= sum(done.in_time) > 0
            assert len(done.in_time) == 4
            assert done.overlaps == 0
            assert done.requests
            assert done.requests / done.entries >= 2, "a lock takes two writes"
            assert 0 < done.processor < 60
        once = pool.run(works.DISTLOCK, replace(work, count=1, hold=0.002), 1)
        assert once.entries == 4
        assert len(once.idle) == 3
        refused = pool.run(works.DISTLOCK, replace(works.REFUSED), 0.2)
        assert refused.entries > 0
        assert refused.overlaps == 0
        reentry = pool.ask("Python", "reentry 0.1")
        assert reentry["distlock"] > reentry["RLock"] > 0


def test_bare_requests_do_not_exclude_which_the_witness_sees(
    servers: Servers, tmp_path: Path
) -> None:
    work = replace(works.THREADS, threads=4, hold=0.01)
    with Pool(servers, tmp_path) as pool:
        assert pool.run(works.RAW, work, 0.5).overlaps > 0


def test_the_bare_client_makes_a_node_and_removes_it(servers: Servers, tmp_path: Path) -> None:
    with (
        Pool(servers, tmp_path) as pool,
        raw_client(servers.zookeeper.hosts) as client,
    ):
        pool.ask("Python", "hold floor key")
        (node,) = client.get_children("/bench/floor/key")
        assert client.get(f"/bench/floor/key/{node}")[1].ephemeralOwner
        pool.ask("Python", "let_go floor key")
        assert eventually(lambda: not client.get_children("/bench/floor/key"))
        done = pool.run(works.FLOOR, works.UNCONTENDED, 0.2)
        assert done.requests
        # The first connection asks, too.
        assert 0 <= done.requests - 3 * done.entries <= 0.02 * done.requests + 5


def test_after_a_failure_the_next_run_has_processes_of_its_own(
    servers: Servers, tmp_path: Path
) -> None:
    with Pool(servers, tmp_path) as pool:
        pool.processes("Python", 1)[0].tell("an order that nobody understands")
        with pytest.raises(Failed, match="What does this mean"):
            pool.run(works.DISTLOCK, works.UNCONTENDED, 0.1)
        assert pool.run(works.DISTLOCK, works.UNCONTENDED, 2).entries


def test_a_process_that_ends_says_why(tmp_path: Path) -> None:
    process = Process(["sh", "-c", "echo out of coffee >&2"], tmp_path / "log")
    try:
        with pytest.raises(Failed, match=r"has ended\.\nout of coffee"):
            process.listen()
    finally:
        process.close()
