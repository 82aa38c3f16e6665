"""Checks a history: pure functions from a timeline to violations.

All processes of a run are on one machine and one clock, and a fencing token orders the holders of
a key, so nothing has to be searched or guessed: `Timeline.rival` is the first to get the lock with
a greater token, and everything is said in terms of hold and rival.

A time is taken *after* the thing for what begins a right ("got": acquire has returned) and *before*
it for what ends one ("release": release is about to be called), so a violation is one for certain.

A process that was stopped (SIGSTOP) is judged from when it ran again: no code of it could have done
better. The half second of `timeline.GRACE` is for its threads to get their turn. The time limit of
a call does not count the time for which the machine was too busy to run it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from distlock_chaos import schedule

from .exclusion import (
    Violation,
    acts,
    crowds,
    fence_violations,
    late_losses,
    lost_updates,
    margins,
    naive_losses,
    named,
    overlaps,
    parts,
    stale_acts,
)
from .timeline import Call, Span, Timeline

__all__ = ["Violation", "acts", "check", "margins", "naive_losses", "overrun_times", "recoveries"]

#: The default of the setting ``CONNECT_TIMEOUT``, in seconds.
LEASE_ANSWER = 3.0
#: By how much a call may overrun its time, in seconds (promise 7).
OVERRUN = 0.5
#: For how much longer than a session timeout each process may be without a lock once replaced
#: servers serve, in seconds.
ABSENCE = 6.0
#: The limit for a recovery beyond session timeout and tick, in seconds.
RECOVERY_SLACK = 1.0


def check(timeline: Timeline) -> list[Violation]:
    """Return all violations of a history, in the order of their times."""
    found = [violation for gate in GATES for violation in gate(timeline)]
    return sorted(found, key=lambda violation: violation.at)


# --- time ----------------------------------------------------------------------------------------


def overruns(timeline: Timeline) -> Iterator[Violation]:
    """Calls that took half a second longer than they were allowed to, and releases that did."""
    for call, seconds, what in overrun_times(timeline):
        if seconds > OVERRUN:
            text = f"{what} of {named(call)} took {seconds:.3f} s too long ({call.how or 'no end'})"
            yield Violation("overruns", call.asked, text)


def overrun_times(timeline: Timeline) -> Iterator[tuple[Call, float, str]]:
    """Yield by how much acquires and releases overran, in processes that were not stopped in it."""
    for call in timeline.calls.values():
        spans = [("acquire", call.asked, call.answered, call.timeout)]
        if call.released is not None:
            # The release of a lease waits for its answer, for CONNECT_TIMEOUT at most.
            allowed = LEASE_ANSWER if call.mode == "lease" else 0.0
            spans.append(("release", call.released, call.ended, allowed))
        for what, begin, end, allowed in spans:
            if end is None and call.killed is not None:
                continue
            end = timeline.until if end is None else end  # noqa: PLW2901
            span = Span(begin, end)
            if not timeline.was_stopped(call.pid, span):
                yield call, end - begin - timeline.held_up(call.pid, span) - allowed, what


def slow_recoveries(timeline: Timeline) -> Iterator[Violation]:
    """Faults after which nobody got the lock for longer than session timeout, tick and a second.

    Not counting for how long the machine held up the one that it held up most.
    """
    allowed = timeline.session_timeout + timeline.tick + RECOVERY_SLACK
    for at, kind, seconds in recoveries(timeline):
        span = Span(at, at + seconds)
        held_up = max((timeline.held_up(pid, span) for pid in timeline.delays), default=0.0)
        if seconds - held_up > allowed:
            yield Violation("slow recoveries", at, f"{seconds:.3f} s after {kind}")


def recoveries(timeline: Timeline) -> Iterator[tuple[float, str, float]]:
    """Yield time and kind of each fault, and the seconds until somebody got the lock.

    After a fault that ends the holder's session: from its begin, and the holder's lock. After one
    that hits the servers: from its end, and any lock. A recovery that the end of the run, or the
    next fault, cuts short counts up to there.
    """
    works_until = max((call.asked for call in timeline.calls.values()), default=0.0)
    begins = [*(fault.at for fault in timeline.faults), math.inf]
    for fault, next_fault in zip(timeline.faults, begins[1:], strict=True):
        if fault.kind in schedule.LOSES:
            for hold in timeline.holds:
                if hold.pid == fault.pid and hold.holds_at(fault.at):
                    after = [h.got for h in timeline.holds if h.key == hold.key and h.got]
                    seconds = _first(after, fault.at, works_until)
                    if seconds is not None:
                        yield fault.at, f"{fault.kind} on {named(hold)}", seconds
        elif fault.kind in {**schedule.OTHERS, **schedule.SCENES} and fault.healed < math.inf:
            after = [hold.got for hold in timeline.holds if hold.got]
            seconds = _first(after, fault.healed, min(works_until, next_fault))
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
                    text = f"{named(hold)} was lost in a short fault: {fault.kind}"
                    yield Violation("needless losses", hold.lost, text)


def abandoned_sessions(timeline: Timeline) -> Iterator[Violation]:
    """Sessions that were given up in a fault that they outlive.

    Counted is a second session of a process that got a lock between the last fault and this one,
    so its earlier session was in order.
    """
    faults = timeline.faults
    begins = [*(fault.at for fault in faults), math.inf]
    healed = [0.0, *(fault.healed for fault in faults)]
    for fault, next_fault, before in zip(faults, begins[1:], healed, strict=False):
        if fault.kind in schedule.KEEPS_SESSIONS:
            for at, pid in timeline.sessions:
                worked = any(
                    h.pid == pid and before <= (h.got or 0) <= fault.at for h in timeline.holds
                )
                if fault.at <= at < next_fault and worked:
                    text = f"process {pid} began another session after {fault.kind}"
                    yield Violation("abandoned sessions", at, text)


def refusals(timeline: Timeline) -> Iterator[Violation]:
    """Calls that ended with `LockUnavailable` though servers and links were in order."""
    refused = [call for call in timeline.calls.values() if call.how == "unavailable"]
    for fault in timeline.faults:
        for call in refused:
            at = call.ended or 0.0
            hit = call.key == fault.key and fault.at <= at <= fault.healed
            if hit and fault.kind in schedule.HARMLESS:
                text = f"{named(call)} was refused after {fault.kind}"
                yield Violation("refusals", at, text)


def absences(timeline: Timeline) -> Iterator[Violation]:
    """Processes that get no lock for long after the servers were replaced by others."""
    begins = [*(fault.at for fault in timeline.faults), math.inf]
    for fault, next_fault in zip(timeline.faults, begins[1:], strict=True):
        if fault.kind not in schedule.RETURNS:
            continue
        for pid in {call.pid for call in timeline.calls.values() if call.asked < fault.at}:
            got = [hold.got for hold in timeline.holds if hold.pid == pid and hold.got]
            asked = max(call.asked for call in timeline.calls.values() if call.pid == pid)
            seconds = _first(got, fault.healed, min(asked, next_fault))
            if seconds is not None and seconds > timeline.session_timeout + ABSENCE:
                text = f"process {pid} got no lock for {seconds:.3f} s after {fault.kind}"
                yield Violation("absences", fault.healed, text)


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
            yield Violation("errors", call.ended or 0.0, f"{named(call)} {call.how}")


#: All gates, by the name that their violations carry.
GATES = (
    stale_acts,
    overlaps,
    crowds,
    parts,
    late_losses,
    lost_updates,
    fence_violations,
    overruns,
    slow_recoveries,
    needless_losses,
    abandoned_sessions,
    refusals,
    absences,
    believing_children,
    leftovers,
    stuck_processes,
    errors,
)
