"""The checker finds each kind of violation in a history, and passes what is allowed.

Every gate has a history that fails it alone, and one that is as close as can be and passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from distlock_chaos.analysis import checker
from tests.faults.tools import Story

# What is said of a history, what stands for its `_` (after `|`, one after the other), and the gates
# that it fails (after `:`). Lines that follow each other are said of one history.
HISTORIES = """
a good history
    1 hold a 10, 1.1 check a, 1.11 claim a fenced=0, 1.15 check a, 1.16 write a read=0,
    1.5 release a, 1.6 hold b 11 pid=2, 1.7 check b, 1.71 claim b fenced=1, 1.75 check b,
    1.76 write b read=1, 2 release b, 3 fault kill until=3.5, 30 left

-- mutual exclusion: a grant on a node of the earlier session, a hold that outlives its session

a write after a check that began after the rival's acquire: stale acts
    1 hold a 10, 1.1 claim a fenced=0, 1.2 stopped 7, 6 hold b 11 pid=2, 7.1 check a,
    7.11 write a read=0, 7.2 check a passed=False, 7.21 release a
a hold that is not given up before the rival's acquire: overlaps
    1 hold a 10, 6 hold b 11 pid=2, 6.1 lose a, 6.2 release a
a hold that never ends: overlaps
    1 hold a 10, 6 hold b 11 pid=2
a killed holder holds no more
    1 hold a 10, 2 killed pid=1, 6 hold b 11 pid=2
a stopped holder has half a second to say its loss | 8.4
a holder that goes on after a stop | 8.6: overlaps
    1 hold a 10, 2 stopped 8, 6 hold b 11 pid=2, _ release a
a holder that was stopped long before the rival came: overlaps
    1 hold a 10, 2 stopped 3, 6 hold b 11 pid=2, 6.1 release a
a grant after that of a greater token: overlaps
    1 hold b 11 pid=2, 2 release b, 3 hold a 10, 4 release a
the holder of a broken lock must know after one heartbeat
    1 hold a 10, 2 broke pid=1 key=key, 2.01 hold b 11 pid=2, 3.066 lose a
the holder of a broken lock that goes on: overlaps, stale acts
    1 hold a 10, 2 broke pid=1 key=key, 2.01 hold b 11 pid=2, 2.1 claim a fenced=0, 3.5 check a,
    3.51 write a read=0, 3.6 lose a
a waiter whose node an operator removed must know after one heartbeat
    1 ask a timeout=9, 2 broke pid=1 key=key, 2.1 get a 10, 2.2 hold b 11 pid=2, 3.2 lose a,
    4 release b

-- the registers

a write that was taken after one with a greater token: fence violations
    1 hold a 10, 1.1 claim a fenced=0, 1.2 check a, 1.2005 stopped 7, 6 hold b 11 pid=2,
    6.1 claim b fenced=0, 7.001 write a read=0, 7.01 check a passed=False
a refusal without a greater token: fence violations
    1 hold a 10, 1.1 claim a fenced=0 accepted=False, 1.2 release a
two holds with one token: fence violations
    1 hold a 10, 2 release a, 3 hold b 10 pid=2, 4 release b

-- other recipes

readers share
    1 hold a 10 mode=read, 2 hold b 11 pid=2 mode=read, 2.1 read b, 2.2 read a, 3 release a,
    3 release b
a reader and a writer: overlaps
    1 hold a 10 mode=read, 2 hold b 11 pid=2 mode=write, 3 release a, 3 release b
a writer and a reader: overlaps
    1 hold a 10 mode=write, 2 hold b 11 pid=2 mode=read, 3 release a, 3 release b
a read after a check that lied: stale acts
    1 hold a 10 mode=read, 1.5 stopped 7, 6 hold b 11 pid=2 mode=write, 7.1 check a, 7.11 read a,
    7.2 check a passed=False, 7.21 release a
as many as the limit have a permit | 2.1
one more than the limit has a permit | 1.9: crowds
    1 hold a 10 mode=permit, 1.1 hold b 11 pid=2 mode=permit, 2 release a,
    _ hold c 12 pid=3 mode=permit, 3 release b, 3 release c
a stopped process may keep its permit until it runs
    1 hold a 10 mode=permit, 1.1 hold b 11 pid=2 mode=permit, 1.5 stopped 8,
    7 hold c 12 pid=3 mode=permit, 8.1 lose a, 9 release b, 9 release c
locks that are taken together are got together: parts
    1 hold a 10 group=a, 1 ask b group=a, 2 release a, 2 end b busy
a lease is held until its last check that passed | 5.9
a lease whose check passed after the rival's acquire | 6.1: overlaps, stale acts
    1 hold a 10 mode=lease, 6 hold b 11 pid=2 mode=lease, _ check a, 6.3 write a read=0,
    6.5 check a passed=False, 6.6 release a, 7 release b

-- losses

a loss said half a second before the rival | 5.4
a loss said less than half a second before the rival | 5.6: late losses
    1 hold a 10, 2 cut_off 8, _ lose a, 5.7 release a, 6 hold b 11 pid=2
a hold that is lost in a short fault | pause | cut | fork: needless losses
    1 hold a 10, 1.5 fault _ until=2, 3 lose a, 3.1 release a
a loss in the next fault is not needless
    1 hold a 10, 1.5 fault cut until=2, 2.5 fault quorum-loss until=8, 5 lose a, 5.1 release a

-- time

a call overruns its time by less than half a second | 4.4 end a busy
a call overruns its time | 4.6 end a busy | 4.6 end a unavailable | 4.6 end a interrupted: overruns
a call never returns | 30 left: overruns
    1 ask a timeout=3, _
a release that does not return: overruns
    1 hold a 10, 2 release a ended=2.6
a stopped process is not blamed for being late
    1 ask a timeout=3, 3 stopped 9, 9.1 end a busy
what held a process up is not its overrun, be it partly before the call | 4.6
what held another process up is no excuse | 4.8: overruns
    1 ask a timeout=3, 0.5 held_up 1.1, 2 held_up 2.1, 2 held_up 3 pid=2, _ end a busy
a killed process is not blamed for not answering
    1 ask a timeout=3, 2 killed pid=1, 30 left
the next has a killed holder's lock within timeout, tick and a second | 6.9
the next has a killed holder's lock later | 7.1: slow recoveries
    0.9 hold a 10, 1 fault kill until=1.5, 1.01 killed pid=1, _ hold b 11 pid=2, 8 release b,
    20 ask c pid=2, 20.1 end c busy
a recovery that the end of the run cuts short does not count
    1 hold a 10, 1 fault kill until=1.5, 1.01 killed pid=1, 5 ask b pid=2, 6 end b busy, 30 left
recovery counts from the end where the server may keep the session | quorum-loss | deaf
    1 fault _ until=10, 15.9 hold b 11 pid=2, 16 release b, 20 ask c pid=2, 20.1 end c busy
recovery takes longer from the end | quorum-loss | deaf: slow recoveries
    1 fault _ until=10, 16.1 hold b 11 pid=2, 17 release b, 20 ask c pid=2, 20.1 end c busy
a recovery that the next fault cuts short is the next one's
    1 fault interrupt until=1, 1.2 fault quorum-loss until=10, 15.9 hold b 11 pid=2, 16 release b,
    20 ask c pid=2, 20.1 end c busy

-- what is left

nodes that are left: nodes left
    30 left /chaos/key/_c_x-lock-0000000001
watches that are left: watches left
    30 left watches=1
processes that do not end as told | stuck | died: stuck processes
    3 _ pid=1
a forked child that does not hold | False
a forked child that holds | True: believing children
    3 forked pid=9 key=key believes=_
an exception that nobody expects: errors
    1 ask a, 1.1 end a failed:-KeyError()

-- sessions and servers

a session that a short fault ends | leader-pause | cut | line-begun-anew: abandoned sessions
a session that a long fault ends is not abandoned | frozen-leader | stop | replaced-server
    0.5 session pid=1 id=first, 1 hold a 10, 1.1 release a, 2 fault _ until=4,
    4.5 session pid=1 id=second
the first session of a process abandons none
    2 fault leader-pause until=4, 3 session pid=1 id=first
a session that an earlier fault has ended is not abandoned
    0.5 session pid=1 id=first, 1 hold a 10, 1.1 release a, 2 fault stop until=8,
    10 fault leader-pause until=12, 12.5 session pid=1 id=second
a call that is refused while all servers serve | line-begun-anew: refusals
a call that is refused while the leader is paused | leader-pause
    2 fault _ until=4, 1.5 ask a timeout=6, 2.5 end a unavailable
every process is back after its servers were replaced | replaced-server | demoted-primary
    1 hold a 10, 1.1 release a, 3 fault _ until=4, 4.5 hold b 11 pid=2, 4.6 release b,
    13.9 hold c 12, 14 release c
a process is late after its servers were replaced | replaced-server | demoted-primary: absences
    1 hold a 10, 1.1 release a, 3 fault _ until=4, 4.5 hold b 11 pid=2, 4.6 release b,
    14.1 hold c 12, 14.2 release c
tokens begin anew with the servers
    1 hold a 10, 2 release a, 3 replaced, 4 hold b 3 pid=2, 5 release b
a hold that a replaced server forgets ends by its deadline | 6.1
a hold that a replaced server forgets ends later | 6.3: overlaps
    1 hold a 10, 3 replaced, 4 hold b 3 pid=2, _ lose a
"""


def cases() -> Iterator[object]:
    for heads, history in re.findall(r"((?:^\w.*\n)+)((?: {4}.*\n)+)", HISTORIES, re.MULTILINE):
        for head in heads.splitlines():
            said, _, gates = head.partition(": ")
            name, *each = said.split(" | ")
            for one in each or [""]:
                told = re.sub(r"\b_\b", one, history)
                yield pytest.param(told, gates, id=f"{name} {one}".strip())


@pytest.mark.parametrize(("told", "gates"), [*cases()])
def test_just_these_gates_fail(story: Story, told: str, gates: str) -> None:
    story.tell(told)
    assert ", ".join(story.gates()) == gates


def test_a_write_after_a_check_that_began_before_the_rivals_acquire_is_unavoidable(
    story: Story,
) -> None:
    story.tell(
        "1 hold a 10, 1.1 claim a fenced=0, 1.2 check a, 1.2005 stopped 7, 6 hold b 11 pid=2,"
        "6.1 claim b fenced=0, 7.001 write a read=0 accepted=False, 7.01 check a passed=False,"
        "7.02 release a"
    )
    assert story.gates() == []
    stale, unavoidable = checker.acts(story.timeline())
    assert (len(stale), len(unavoidable)) == (0, 1)


def test_a_fenced_write_over_what_its_writer_had_not_read_is_a_lost_update(story: Story) -> None:
    story.tell(
        "1 hold a 10, 1.1 claim a fenced=0, 1.2 write a read=0, 2 release a,"
        "2.1 hold b 11 pid=2, 2.2 claim b fenced=1, 2.3 write b read=1, 2.4 release b,"
        "3 hold c 12, 3.1 claim c fenced=2, 3.2 check c, 3.3 write c read=1 found=2, 3.4 release c"
    )
    assert story.gates() == ["lost updates"]
    assert checker.naive_losses(story.timeline()) == 1


def test_the_margin_of_a_loss_is_the_time_from_its_signal_to_the_rivals_acquire(
    story: Story,
) -> None:
    story.tell("1 hold a 10, 2 cut_off 8, 5.4 lose a, 5.7 release a, 6 hold b 11 pid=2")
    assert [round(margin, 3) for _, margin in checker.margins(story.timeline())] == [0.6]
