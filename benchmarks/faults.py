"""The faults, each brought about in the same way for every library.

A fault takes an `Arena` and returns its `Finding`: what was measured, by name. A number is
seconds; a text is a fact.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import NamedTuple, TypeVar

from benchmarks.arena import SESSION_TIMEOUT, Arena, Call, Contender, Scene, eventually, outcome

Finding = dict[str, float | str]

#: How long the old holder is watched after the rival has the lock, in seconds.
WATCHED = 3.0
#: When a forked child's call is taken for one that never comes back, in seconds.
HANGS = 8.0
OUTAGE = 8.0
SHORT_CUT = 2.0

RECOVERY = "recovery"
SAYS = "says"
OVERLAP = "overlap"
HEEDING = "heeding"
LEFT = "left"
#: What begins the name of a listener's news, of a call's time, and of what came of the call.
TOLD = "told "
CALL = "call "
CAME = "came of "


class Fault(NamedTuple):
    """A fault and how it is done, in words."""

    title: str
    how: str
    run: Callable[[Arena], Finding]


#: All faults by the names that the command knows.
FAULTS: dict[str, Fault] = {}

_Run = TypeVar("_Run", bound=Callable[..., Finding])


def fault(name: str, title: str, how: str) -> Callable[[_Run], _Run]:
    """Enter the function into `FAULTS`."""

    def enter(run: _Run) -> _Run:
        FAULTS[name] = Fault(title, how, run)
        return run

    return enter


@fault(
    "killed",
    "The holder is killed",
    "SIGKILL. The session reaper, which frees distlock's lock in some hundredths of a second, "
    "is not running.",
)
def killed(arena: Arena) -> Finding:
    with arena.scene() as scene:
        waiting = scene.hold_and_wait()
        at = scene.holder.send(signal.SIGKILL)
        return {**_recovery(waiting, at), **_left(scene)}


@fault(
    "stopped",
    "The holder is stopped past its session's end",
    "SIGSTOP until the rival has the lock, then SIGCONT. Loss and overlap count from SIGCONT.",
)
def stopped(arena: Arena) -> Finding:
    with arena.scene() as scene:
        waiting = scene.hold_and_wait()
        at = scene.holder.send(signal.SIGSTOP)
        recovery = _recovery(waiting, at)
        woken = scene.holder.send(signal.SIGCONT)
        return {**recovery, **_loss(scene, waiting, woken), **_ending(scene, waiting)}


@fault(
    "black-hole",
    "The holder's link drops every packet",
    "The connection stays open, but nothing arrives, while another thread of the holder keeps "
    "sending requests on it.",
)
def black_hole(arena: Arena) -> Finding:
    with arena.scene() as scene:
        waiting = scene.hold_and_wait()
        scene.holder.tell("traffic")
        at = time.monotonic()
        scene.holder.link.black_hole()
        recovery = _recovery(waiting, at)
        loss = _loss(scene, waiting, at)
        scene.holder.link.pass_through()
        return {**recovery, **loss, **_ending(scene, waiting)}


@fault(
    "short-cut",
    "The holder's link is cut for 2 s",
    "Connections are closed, and new ones refused, for half the session timeout.",
)
def short_cut(arena: Arena) -> Finding:
    with arena.scene() as scene:
        waiting = scene.hold_and_wait()
        at = time.monotonic()
        scene.holder.link.cut()
        time.sleep(SHORT_CUT)
        scene.holder.link.pass_through()
        if outcome(waiting, SESSION_TIMEOUT + 2) is None:
            kept: Finding = {RECOVERY: "kept", **_told(scene.holder, at), **_says(scene.holder, at)}
            return {**kept, **_ending(scene, waiting)}
        return {**_recovery(waiting, at), **_loss(scene, waiting, at), **_ending(scene, waiting)}


@fault(
    "long-cut",
    "The holder's link is cut past its session's end",
    "The link heals when the rival has the lock.",
)
def long_cut(arena: Arena) -> Finding:
    with arena.scene() as scene:
        waiting = scene.hold_and_wait()
        at = time.monotonic()
        scene.holder.link.cut()
        recovery = _recovery(waiting, at)
        scene.holder.link.pass_through()
        return {**recovery, **_loss(scene, waiting, at), **_ending(scene, waiting)}


@fault(
    "outage",
    "The server is away for 8 s, with calls under way",
    "SIGKILL of the server; at once the holder calls release() and another acquire(3). "
    "Recovery counts from the moment the server serves again.",
)
def outage(arena: Arena) -> Finding:
    with arena.scene() as scene:
        scene.hold()
        at = time.monotonic()
        arena.server.kill()
        release, acquire = scene.holder.order("release"), scene.rival.order("acquire 3")
        time.sleep(at + OUTAGE - time.monotonic())
        arena.server.start()
        return _served_again(scene, {"release()": release, "acquire(3)": acquire})


@fault(
    "down",
    "The server is down at the first acquire",
    "The process has never been connected. Recovery counts as above.",
)
def down(arena: Arena) -> Finding:
    with arena.scene() as scene:
        arena.server.kill()
        acquire = scene.rival.order("acquire 3")
        time.sleep(OUTAGE)
        arena.server.start()
        return _served_again(scene, {"acquire(3)": acquire})


@fault(
    "broken",
    "An operator breaks the lock",
    "Another client deletes the holder's node, half a session timeout after the acquire.",
)
def broken(arena: Arena, *, held_for: float = SESSION_TIMEOUT / 2) -> Finding:
    with arena.scene() as scene:
        waiting = scene.hold_and_wait()
        time.sleep(held_for)
        with scene.client() as client:
            node = scene.line()[0]
            at = time.monotonic()
            client.delete(f"{scene.path}/{node}")
        return {**_recovery(waiting, at), **_loss(scene, waiting, at), **_ending(scene, waiting)}


@fault(
    "broken-early",
    "An operator breaks a lock that was just acquired",
    "The same happens within the first sixth of the session timeout, as soon as the rival waits.",
)
def broken_early(arena: Arena) -> Finding:
    return broken(arena, held_for=0)


@fault(
    "removed",
    "An operator removes the whole queue",
    "The holder's and the rival's nodes and their parent are deleted in one transaction, half a "
    "session timeout after the acquire. If the rival's call fails, it tries again.",
)
def removed(arena: Arena) -> Finding:
    with arena.scene() as scene:
        waiting = scene.hold_and_wait()
        time.sleep(SESSION_TIMEOUT / 2)
        nodes = scene.line()
        with scene.client() as client:
            removal = client.transaction()
            for node in nodes:
                removal.delete(f"{scene.path}/{node}")
            removal.delete(scene.path)
            at = time.monotonic()
            removal.commit()
        return {**_rejoined(scene, waiting, at), **_ending(scene, waiting)}


@fault(
    "expired",
    "The server ends the holder's session",
    "A second client with the session's id and password closes it; the link is intact.",
)
def expired(arena: Arena) -> Finding:
    with arena.scene() as scene, ExitStack() as theft:
        waiting = scene.hold_and_wait()
        session = scene.holder.session()
        at = time.monotonic()
        theft.enter_context(scene.client(thief_of=session))
        theft.close()
        return {**_recovery(waiting, at), **_loss(scene, waiting, at), **_ending(scene, waiting)}


@fault("forked", "The holder forks", "The child takes the same lock, with a timeout of 3 s.")
def forked(arena: Arena) -> Finding:
    if arena.library == "Curator":
        return {SAYS: "a JVM cannot fork"}
    with arena.scene() as scene:
        waiting = scene.hold_and_wait()
        at = time.monotonic()
        fork = scene.holder.order("fork")
        if outcome(fork, HANGS) is None:
            scene.holder.kill_child()
        child = scene.holder.child
        finding: Finding = {
            RECOVERY: "kept" if outcome(waiting, 0.5) is None else "lost",
            **_told(scene.holder, at),
            **_says(scene.holder, at),
            CALL + "child's lock says": child["believes"].outcome,
        }
        if call := child.get("acquire"):
            finding |= _result("child's acquire(3)", call)
        else:
            finding[CALL + "child's acquire(3)"] = f"hangs, killed after {HANGS:g} s"
        outcome(fork)
        return {**finding, **_ending(scene, waiting)}


@fault(
    "interrupted",
    "An exception is raised in a waiter",
    "A signal handler raises it, as for a soft time limit; in Java, Thread.interrupt() does. "
    "Then the holder releases and acquires again, and recovery is the time that this takes.",
)
def interrupted(arena: Arena) -> Finding:
    with arena.scene() as scene:
        waiting = scene.hold_and_wait()
        scene.rival.tell("interrupt")
        finding = {
            **_call("interrupted acquire", waiting),
            **_call("release()", released := scene.holder.order("release")),
        }
        again = scene.holder.do("acquire 10")
        got = again.outcome == "got"
        finding[RECOVERY] = again.ended - released.result().began if got else "not in 10 s"
        if got:
            scene.holder.do("release")
        return {**finding, **_left(scene)}


def _recovery(waiting: Future[Call], at: float) -> Finding:
    call = outcome(waiting)
    return {RECOVERY: call.ended - at if call and call.outcome == "got" else "never"}


def _rejoined(scene: Scene, waiting: Future[Call], at: float) -> Finding:
    """What comes of a waiting call; one that fails is made anew."""
    finding = _call("waiting acquire", waiting)
    last = outcome(waiting)
    if last is None or last.outcome != "got":
        last = outcome(scene.rival.order("acquire 25"))
    recovery = last.ended - at if last and last.outcome == "got" else "not in 25 s"
    return {RECOVERY: recovery, **_loss(scene, waiting, at), **finding}


def _loss(scene: Scene, waiting: Future[Call], at: float) -> Finding:
    """What the old holder learns, seen until some seconds after the rival has the lock."""
    granted = outcome(waiting)
    since = max(granted.ended, at) if granted else time.monotonic()
    eventually(lambda: time.monotonic() > since + WATCHED)
    until = time.monotonic()
    holder = scene.holder
    overlap = holder.believed(since, until)
    # A program may also stop at the first news of its listener, whatever the lock object says.
    heeding = min((when for when, _ in _news(holder, at)), default=until)
    return {
        **_told(holder, at),
        **_says(holder, at),
        OVERLAP: "no end" if holder.believes else overlap,
        HEEDING: holder.believed(since, heeding) if heeding < until or not overlap else "no end",
    }


def _news(contender: Contender, at: float) -> list[tuple[float, str]]:
    """What a listener was told after a fault that puts the lock in doubt."""
    return [news for news in contender.told if news[0] >= at and "CONNECTED" not in news[1]]


def _told(contender: Contender, at: float) -> Finding:
    finding: Finding = {}
    for when, what in _news(contender, at):
        finding.setdefault(TOLD + what, when - at)
    return finding


def _says(holder: Contender, at: float) -> Finding:
    last = holder.beliefs[-1][1]
    return {SAYS: "held" if last is None else max(0.0, last - at)}


def _call(name: str, pending: Future[Call]) -> Finding:
    """What came of a call, and after how long."""
    call = outcome(pending)
    if call is None:
        return {CALL + name: "does not come back"}
    return _result(name, call)


def _result(name: str, call: Call) -> Finding:
    return {CALL + name: call.seconds, CAME + name: call.outcome}


def _ending(scene: Scene, waiting: Future[Call]) -> Finding:
    """Let both release, the old holder first, and look what stays behind."""
    finding = _call("release()", scene.holder.order("release"))
    outcome(waiting)
    return {**finding, **_left(scene)}


def _left(scene: Scene) -> Finding:
    """Let the rival release, and count what stays behind."""
    outcome(scene.rival.order("release"))
    return {LEFT: str(scene.nodes_left())}


def _served_again(scene: Scene, pending: dict[str, Future[Call]]) -> Finding:
    """Collect the calls that an outage has met; then the rival takes the lock, if it has not."""
    back = time.monotonic()
    finding: Finding = {}
    for name, call in pending.items():
        finding |= _call(name, call)
    last = outcome(pending["acquire(3)"])
    if last is None or last.outcome != "got":
        last = outcome(scene.rival.order("acquire 25"))
    recovery = last.ended - back if last and last.outcome == "got" else "not in 25 s"
    return {RECOVERY: recovery, **finding, **_left(scene)}
