"""What a history proves: pure functions from a timeline to violations.

All processes of a run are on one machine and one clock, and a fencing token orders the holders of
a key, so nothing has to be searched or guessed: `Timeline.rival` is the first to get the lock with
a greater token, and everything is said in terms of hold and rival.

A time is taken *after* the thing for what begins a right ("got": acquire has returned) and *before*
it for what ends one ("release": release is about to be called), so a violation is one for certain.

What a process does that was stopped (SIGSTOP) is judged from when it ran again: no code of it could
have done better. The half second of `timeline.GRACE` is for its threads to get their turn. What a
call may take is counted without the time for which the machine was too busy to run it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from . import schedule
from .timeline import GRACE, Call, Span, Timeline

#: By how much a call may overrun its time, in seconds (promise 7).
OVERRUN = 0.5
#: How long before the rival gets the lock its loss must have been said, in seconds.
MARGIN = 0.5
#: What a recovery may take beyond session timeout and tick, in seconds.
RECOVERY_SLACK = 1.0


class Violation(NamedTuple):
    """Something that must not happen, and did."""

    gate: str
    at: float
    text: str


def check(timeline: Timeline) -> list[Violation]:
    """Return all violations of a history, in the order of their times."""
    found = [violation for gate in GATES for violation in gate(timeline)]
    return sorted(found, key=lambda violation: violation.at)


# --- mutual exclusion ----------------------------------------------------------------------------


def acts(timeline: Timeline) -> tuple[list[tuple[float, Call]], list[tuple[float, Call]]]:
    """Return the stale acts and the unavoidable ones: time and hold of each.

    Both are writes that took effect after the rival had got the lock. It is a *stale act* if the
    last check that allowed it *began* after the rival had got the lock, and passed all the same:
    the lock lied. It is *unavoidable* if the check began earlier: the process was held up between
    check and write, which no lock can prevent; the fence must refuse it.

    A hold that an operator breaks ends without its holder: until the time that `noticed_by` gives,
    its acts are unavoidable too.
    """
    stale: list[tuple[float, Call]] = []
    unavoidable: list[tuple[float, Call]] = []
    for write in timeline.writes:
        hold, rival = write.call, timeline.rival(write.call)
        if not write.does_write or rival is None or rival.got is None or write.at <= rival.got:
            continue
        checks = [check for check in hold.checks if check.passed and check.at <= write.at]
        checked = checks[-1].began if checks else hold.got or 0.0
        excused = hold.broken is not None and checked <= noticed_by(timeline, hold.broken)
        lied = checked > rival.got and not excused
        (stale if lied else unavoidable).append((write.at, hold))
    return stale, unavoidable


def noticed_by(timeline: Timeline, broken: float) -> float:
    """Return when the holder of a broken lock must know: its first heartbeat sets the watch."""
    return broken + timeline.session_timeout / 6 + GRACE


def stale_acts(timeline: Timeline) -> Iterator[Violation]:
    """Writes under a lock that somebody else had got before the check that allowed them."""
    for at, hold in acts(timeline)[0]:
        yield Violation("stale acts", at, f"{_name(hold)} wrote after {_rival(timeline, hold)}")


def overlaps(timeline: Timeline) -> Iterator[Violation]:
    """Two who believed to hold one key: [acquire returned, release called or loss said].

    The rival got the lock while the hold was neither released nor said to be lost, and its process
    was alive and ran. A hold whose process was stopped when the rival came must say its loss as
    soon as it runs again; one that an operator broke, as soon as `noticed_by` says. Also found
    here: a grant that comes after that of a greater token.
    """
    for hold in timeline.holds:
        rival = timeline.rival(hold)
        if rival is None or rival.got is None or hold.believed_until <= rival.got:
            continue
        stop = timeline.was_stopped(hold.pid, Span(rival.got, rival.got))
        if stop is not None and hold.believed_until <= stop.end + GRACE:
            continue
        if hold.broken is not None and hold.believed_until <= noticed_by(timeline, hold.broken):
            continue
        end = min(hold.believed_until, timeline.until)
        text = f"{_name(hold)} held for {end - rival.got:.3f} s with {_rival(timeline, hold)}"
        yield Violation("overlaps", rival.got, text)


def late_losses(timeline: Timeline) -> Iterator[Violation]:
    """Losses that were said less than half a second before the rival got the lock."""
    for hold, margin in margins(timeline):
        if margin < MARGIN:
            text = f"{_name(hold)} said its loss {margin:.3f} s before {_rival(timeline, hold)}"
            yield Violation("late losses", hold.lost or 0.0, text)


def margins(timeline: Timeline) -> Iterator[tuple[Call, float]]:
    """Yield the lost holds with the seconds between the loss said and the rival.

    Only those whose process ran all the time and was cut off from then until the rival came:
    with a link, its own release may have let the rival in.
    """
    for hold in timeline.holds:
        rival = timeline.rival(hold)
        if hold.lost is None or rival is None or rival.got is None or hold.broken is not None:
            continue
        if hold.released is not None and hold.released < hold.lost:
            continue
        if timeline.was_stopped(hold.pid, Span(hold.got or 0.0, rival.got)):
            continue
        if any(
            span.begin <= hold.lost and rival.got <= span.end
            for span in timeline.cut_offs.get(hold.pid, ())
        ):
            yield hold, rival.got - hold.lost


# --- the registers -------------------------------------------------------------------------------


def lost_updates(timeline: Timeline) -> Iterator[Violation]:
    """Writes that the fenced register took, and that overwrote what their writer had not read."""
    for write in timeline.writes:
        found, wrote = write.found[1], write.wrote[1]
        if write.accepted and wrote is not None and wrote != found + 1:
            text = f"{_name(write.call)} wrote {wrote} over {found} in the fenced register"
            yield Violation("lost updates", write.at, text)


def naive_losses(timeline: Timeline) -> int:
    """Return how many updates the naive register lost: the price of the unavoidable acts."""
    return sum(
        write.wrote[0] is not None and write.wrote[0] != write.found[0] + 1
        for write in timeline.writes
    )


def fence_violations(timeline: Timeline) -> Iterator[Violation]:
    """Tokens that do not fence.

    Two holds of a key with one token; an operation that was taken after one with a greater token;
    one that was refused without a greater token having been there.
    """
    tokens = Counter((hold.key, hold.token) for hold in timeline.holds)
    for (key, token), times in tokens.items():
        if times > 1:
            yield Violation("fence violations", 0.0, f"{times} holds of {key} had token {token}")
    fences: dict[str, int] = {}
    for write in timeline.writes:
        hold = write.call
        fence = fences.get(hold.key, 0)
        if write.accepted != (hold.token >= fence):
            text = f"{_name(hold)} was {'taken' if write.accepted else 'refused'} after {fence}"
            yield Violation("fence violations", write.at, text)
        if write.accepted:
            fences[hold.key] = max(fence, hold.token)


# --- time ----------------------------------------------------------------------------------------


def overruns(timeline: Timeline) -> Iterator[Violation]:
    """Calls that took half a second longer than they were allowed to, and releases that did."""
    for call, seconds, what in overrun_times(timeline):
        if seconds > OVERRUN:
            text = f"{what} of {_name(call)} took {seconds:.3f} s too long ({call.how or 'no end'})"
            yield Violation("overruns", call.asked, text)


def overrun_times(timeline: Timeline) -> Iterator[tuple[Call, float, str]]:
    """Yield by how much acquires and releases overran, in processes that were not stopped in it."""
    for call in timeline.calls.values():
        spans = [("acquire", call.asked, call.answered, call.timeout)]
        if call.released is not None:
            spans.append(("release", call.released, call.ended, 0.0))
        for what, begin, end, allowed in spans:
            if end is None and call.killed is not None:
                continue
            end = timeline.until if end is None else end  # noqa: PLW2901
            span = Span(begin, end)
            if not timeline.was_stopped(call.pid, span):
                yield call, end - begin - timeline.held_up(call.pid, span) - allowed, what


def slow_recoveries(timeline: Timeline) -> Iterator[Violation]:
    """Faults after which nobody got the lock for longer than session timeout, tick and a second."""
    for at, kind, seconds in recoveries(timeline):
        if seconds > timeline.session_timeout + timeline.tick + RECOVERY_SLACK:
            yield Violation("slow recoveries", at, f"{seconds:.3f} s after {kind}")


def recoveries(timeline: Timeline) -> Iterator[tuple[float, str, float]]:
    """Yield time and kind of each fault, and the seconds until somebody got the lock.

    After a fault that ends the holder's session: from its begin, and the holder's lock. After one
    that hits the servers: from its end, and any lock. What the end of the run cuts short does not
    count.
    """
    works_until = max((call.asked for call in timeline.calls.values()), default=0.0)
    for fault in timeline.faults:
        if fault.kind in schedule.LOSES:
            for hold in timeline.holds:
                if hold.pid == fault.pid and hold.holds_at(fault.at):
                    after = [h.got for h in timeline.holds if h.key == hold.key and h.got]
                    seconds = _first(after, fault.at, works_until)
                    if seconds is not None:
                        yield fault.at, f"{fault.kind} on {_name(hold)}", seconds
        elif fault.kind in schedule.OTHERS and fault.healed < math.inf:
            after = [hold.got for hold in timeline.holds if hold.got]
            seconds = _first(after, fault.healed, works_until)
            if seconds is not None:
                yield fault.at, fault.kind, seconds


def _first(times: list[float], begin: float, works_until: float) -> float | None:
    first = min((at for at in times if at > begin), default=math.inf)
    if first <= works_until:
        return first - begin
    return works_until - begin if works_until > begin else None


# --- what must survive, and what must not be left ------------------------------------------------


def needless_losses(timeline: Timeline) -> Iterator[Violation]:
    """Holds that were lost in a fault that a session outlives: a short pause or cut, a fork."""
    begins = [*(fault.at for fault in timeline.faults), math.inf]
    for fault, next_fault in zip(timeline.faults, begins[1:], strict=True):
        if fault.kind in schedule.KEEPS:
            for hold in timeline.holds:
                hit = hold.pid == fault.pid and hold.holds_at(fault.at)
                if hit and hold.lost is not None and hold.lost < next_fault:
                    text = f"{_name(hold)} was lost in a short fault: {fault.kind}"
                    yield Violation("needless losses", hold.lost, text)


def believing_children(timeline: Timeline) -> Iterator[Violation]:
    """Forked children that took themselves for the holder."""
    for event in timeline.of("forked"):
        if event["believes"]:
            yield Violation("believing children", 0.0, f"child {event['pid']} of {event['key']}")


def leftovers(timeline: Timeline) -> Iterator[Violation]:
    """Nodes and watches that are there when all have released and all sessions still live."""
    for event in timeline.of("left"):
        for path in event["nodes"]:
            yield Violation("nodes left", timeline.until, path)
        if event["watches"]:
            yield Violation("watches left", timeline.until, f"{event['watches']} watches")


def stuck_processes(timeline: Timeline) -> Iterator[Violation]:
    """Processes that did not end when they were told to, or ended when they were not."""
    for event in timeline.of("stuck", "died"):
        text = f"process {event['pid']}: {event['event']}"
        yield Violation("stuck processes", timeline.until, text)


def errors(timeline: Timeline) -> Iterator[Violation]:
    """Calls that ended with an exception that no documentation names."""
    for call in timeline.calls.values():
        if call.how.startswith("failed"):
            yield Violation("errors", call.ended or 0.0, f"{_name(call)} {call.how}")


#: All gates, by the name that their violations carry.
GATES = (
    stale_acts,
    overlaps,
    late_losses,
    lost_updates,
    fence_violations,
    overruns,
    slow_recoveries,
    needless_losses,
    believing_children,
    leftovers,
    stuck_processes,
    errors,
)


def _name(hold: Call) -> str:
    return f"{hold.id} on {hold.key} (token {hold.token})"


def _rival(timeline: Timeline, hold: Call) -> str:
    rival = timeline.rival(hold)
    return "nobody" if rival is None else f"{rival.id} (token {rival.token}) had got it"
