"""Checks mutual exclusion in a history: two holders, stale acts, and the fence."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from .timeline import GRACE, Call, Span, Timeline

#: How long before the rival gets the lock its loss must have been said, in seconds.
MARGIN = 0.5


class Violation(NamedTuple):
    """Something that must not happen, and did."""

    gate: str
    at: float
    text: str


def acts(timeline: Timeline) -> tuple[list[tuple[float, Call]], list[tuple[float, Call]]]:
    """Return the stale acts and the unavoidable ones: time and hold of each.

    Both are writes, or a reader's reads, that took effect after the rival had got the lock. It is a
    *stale act* if the last check that allowed it *began* after the rival had got the lock, and
    passed all the same: the lock lied. It is *unavoidable* if the check began earlier: the process
    was held up between check and write, which no lock can prevent; the fence must refuse it.

    A hold that an operator breaks, or a replaced server forgets, ends without its holder: as long
    as that cannot know, its acts are unavoidable too.
    """
    stale: list[tuple[float, Call]] = []
    unavoidable: list[tuple[float, Call]] = []
    for write in timeline.writes:
        hold, rival = write.call, timeline.rival(write.call)
        if write.kind == "claim" or rival is None or rival.got is None or write.at <= rival.got:
            continue
        checks = [check for check in hold.checks if check.passed and check.at <= write.at]
        checked = checks[-1].began if checks else hold.got or 0.0
        excused = hold.unaware_until is not None and checked <= hold.unaware_until
        lied = checked > rival.got and not excused
        (stale if lied else unavoidable).append((write.at, hold))
    return stale, unavoidable


def stale_acts(timeline: Timeline) -> Iterator[Violation]:
    """Writes under a lock that somebody else had got before the check that allowed them."""
    for at, hold in acts(timeline)[0]:
        what = "read" if hold.mode == "read" else "wrote"
        yield Violation("stale acts", at, f"{named(hold)} {what} after {_rival(timeline, hold)}")


def overlaps(timeline: Timeline) -> Iterator[Violation]:
    """Two who believed to hold one key: [acquire returned, release called or loss said].

    The rival got the lock while the hold was neither released nor said to be lost, and its process
    was alive and ran. A hold whose process was stopped when the rival came must say its loss as
    soon as it runs again; one that ended without its holder, once that can know. Also found here:
    a grant that comes after that of a greater token.
    """
    for hold in timeline.holds:
        rival = timeline.rival(hold)
        if rival is None or rival.got is None or hold.believed_until <= rival.got:
            continue
        if _excused(timeline, hold, rival.got):
            continue
        end = min(hold.believed_until, timeline.until)
        text = f"{named(hold)} held for {end - rival.got:.3f} s with {_rival(timeline, hold)}"
        yield Violation("overlaps", rival.got, text)


def crowds(timeline: Timeline) -> Iterator[Violation]:
    """Grants of a permit while as many others as are allowed believed to have one."""
    permits: dict[str, list[Call]] = defaultdict(list)
    for hold in timeline.holds:
        if hold.mode == "permit":
            permits[hold.key].append(hold)
    for holds in permits.values():
        for hold in holds:
            at = hold.got or 0.0
            others = [
                other
                for other in holds
                if other is not hold and other.holds_at(at) and not _excused(timeline, other, at)
            ]
            if len(others) >= timeline.limit:
                text = f"{named(hold)} was granted beside {', '.join(other.id for other in others)}"
                yield Violation("crowds", at, text)


def _excused(timeline: Timeline, hold: Call, at: float) -> bool:
    """Whether the holder could not know at that time that it holds no more, and soon did."""
    stop = timeline.was_stopped(hold.pid, Span(at, at))
    if stop is not None and hold.believed_until <= stop.end + GRACE:
        return True
    return hold.unaware_until is not None and hold.believed_until <= hold.unaware_until


def parts(timeline: Timeline) -> Iterator[Violation]:
    """Locks that were taken together, of which some but not all were got."""
    groups: dict[str, list[Call]] = defaultdict(list)
    for call in timeline.calls.values():
        if call.group and call.killed is None:
            groups[call.group].append(call)
    for calls in groups.values():
        got = [call for call in calls if call.got is not None]
        if got and len(got) < len(calls):
            missing = next(call for call in calls if call.got is None)
            yield Violation("parts", missing.asked, f"{named(missing)} was not got with the others")


def late_losses(timeline: Timeline) -> Iterator[Violation]:
    """Losses that were said less than half a second before the rival got the lock."""
    for hold, margin in margins(timeline):
        if margin < MARGIN:
            text = f"{named(hold)} said its loss {margin:.3f} s before {_rival(timeline, hold)}"
            yield Violation("late losses", hold.lost or 0.0, text)


def margins(timeline: Timeline) -> Iterator[tuple[Call, float]]:
    """Yield the lost holds with the seconds between the loss said and the rival.

    Only those whose process ran all the time and was cut off from then until the rival came:
    with a link, its own release may have let the rival in.
    """
    for hold in timeline.holds:
        rival = timeline.rival(hold)
        if hold.lost is None or rival is None or rival.got is None:
            continue
        if hold.unaware_until is not None or hold.mode == "lease":  # a lease's promise is another
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
            text = f"{named(write.call)} wrote {wrote} over {found} in the fenced register"
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
    tokens = Counter((hold.key, hold.order) for hold in timeline.holds)
    for (key, (_, token)), times in tokens.items():
        if times > 1:
            yield Violation("fence violations", 0.0, f"{times} holds of {key} had token {token}")
    fences: dict[str, tuple[int, int]] = {}
    for write in timeline.writes:
        hold = write.call
        fence = fences.get(hold.key, (0, 0))
        if write.accepted != (write.order >= fence):
            text = f"{named(hold)} was {'taken' if write.accepted else 'refused'} after {fence[1]}"
            yield Violation("fence violations", write.at, text)
        if write.accepted and write.kind != "read":
            fences[hold.key] = max(fence, write.order)


def named(hold: Call) -> str:
    return f"{hold.id} on {hold.key} (token {hold.token})"


def _rival(timeline: Timeline, hold: Call) -> str:
    rival = timeline.rival(hold)
    return "nobody" if rival is None else f"{rival.id} (token {rival.token}) had got it"
