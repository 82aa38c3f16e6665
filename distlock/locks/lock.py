"""Defines the options of a lock, and the sync and async ways into it, which all recipes share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from distlock.conf import UNSET, positive_seconds, seconds
from distlock.contenders.batch import check_handoff
from distlock.engine.calls import Immediate
from distlock.owner.hold import Hold

from . import cancellation
from .revocation import check_listener

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from distlock.engine.calls import Call
    from distlock.owner.hold import Held
    from distlock.owner.owner import Identity, Owner

_H = TypeVar("_H")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a lock, which `zk_lock` explains. No recipe has all of them.

    :ivar timeout: seconds, None for ever, `UNSET` for the setting
    :ivar max_hold: seconds, None for no limit
    :ivar template: that of `zk_locked` for the key: for metrics, for example, which show no keys
    :ivar database: the alias for a transaction inside the lock, None for no transaction
    """

    timeout: Any = UNSET
    using: str = "default"
    fair: bool = True
    handoff: int = 0
    atomic: bool | str = False
    on_revoke: Callable[[Any], object] | None = None
    max_hold: Any = None
    cancel_on_loss: bool = False
    template: str = ""
    database: str | None = field(init=False)

    def __post_init__(self) -> None:
        check_listener(self.on_revoke)
        check_handoff(self.handoff, fair=self.fair, revocable=self.on_revoke is not None)
        change = object.__setattr__  # frozen
        change(self, "timeout", self.timeout if self.timeout is UNSET else seconds(self.timeout))
        change(self, "max_hold", positive_seconds(self.max_hold, "max_hold"))
        change(self, "database", "default" if self.atomic is True else self.atomic or None)


class Lock(ABC, Generic[_H]):
    """A lock that is acquired by one `Call`, blocking or awaiting; a block yields its hold."""

    options: Options

    @abstractmethod
    def _acquisition(
        self, blocking: bool, timeout: Any, entered: Callable[[_H], object] | None = None
    ) -> Call[_H | None]:
        """Return the call that takes the lock, and returns its hold, or None if it is busy.

        :param entered: called with the hold when a block begins; a busy lock raises then
        """

    async def aacquire(self, blocking: bool = True, timeout: Any = UNSET) -> bool:
        """Take the lock as `acquire` does, without a thread for the wait."""
        if self.options.cancel_on_loss:
            cancellation.refuse_without_block(self)
        return await self._acquisition(blocking, timeout).arun() is not None

    @abstractmethod
    def release(self) -> None:
        """Release the lock."""

    async def arelease(self) -> None:
        """Release the lock as `release` does."""
        self.release()

    # --- blocks ----------------------------------------------------------------------------------

    def _entered(self, hold: _H) -> None:
        """Begin what a ``with`` block has besides the lock."""

    def _aentered(self, hold: Any) -> None:
        """Begin what an ``async with`` block has besides the lock."""
        if self.options.cancel_on_loss:
            cancellation.begin(self, hold)

    def __enter__(self) -> _H:
        if self.options.cancel_on_loss:
            cancellation.refuse_without_block(self)
        return self.entry().run()

    def entry(
        self, timeout: Any = UNSET, entered: Callable[[_H], object] | None = None
    ) -> Call[_H]:
        """Return the call that begins a block, by default a ``with`` block.

        :meta private:
        """
        entered = entered or self._entered
        return self._acquisition(True, timeout, entered)  # type: ignore[return-value]  # or raises

    @abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    async def __aenter__(self) -> _H:
        return await self.entry(entered=self._aentered).arun()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        loss = cancellation.end(self, error) if self.options.cancel_on_loss else None
        self.__exit__(kind, error, traceback)
        if loss is not None:
            raise loss from error


class Reentry(Immediate["Hold | None"]):
    """Enters a lock again that its owner holds.

    :param reenter: counts one more acquire of `held`
    :param entered: called with the hold when a block begins
    """

    __slots__ = ("_depth", "_entered", "_held", "_identity", "_owner", "_reenter")

    def __init__(
        self,
        reenter: Callable[[Held], Hold],
        identity: Identity,
        owner: Owner,
        held: Held,
        entered: Callable[[Hold], object] | None,
    ) -> None:
        self._reenter = reenter
        self._identity = identity
        self._owner = owner
        self._held = held
        self._depth = held.count
        self._entered = entered

    def run(self) -> Hold:
        try:
            hold = self._reenter(self._held)
            if self._entered is not None:
                self._entered(hold)
            return hold  # noqa: TRY300 - an exception that lands here is undone, too
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        self._owner.back_to(self._depth, self._identity)


class BlockEnd(NamedTuple):
    """The end of a block of several locks, for one of them.

    :ivar release: releases the lock as its own block would
    :ivar undo: does so if that was interrupted or has never begun
    """

    release: Callable[[], object]
    undo: Callable[[], object]


class KeyLock(Lock[Hold]):
    """A lock of one key, which a multi-lock can take together with others."""

    key: str
    using: str

    @property
    @abstractmethod
    def rank(self) -> tuple[str, str, str]:
        """The rank of the lock in the global order; locks of one rank are one lock.

        A mutex and the read/write lock of one key share a queue, so the key comes before the kind.

        :meta private:
        """

    @abstractmethod
    def block_end(self) -> BlockEnd:
        """Return the end of a block that `entry` has begun.

        :meta private:
        """
