"""The sync and async ways into a lock, which every recipe shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from distlock.conf import UNSET

from . import cancellation

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from distlock.queue.calls import Call

_H = TypeVar("_H")


class Lock(ABC, Generic[_H]):
    """A lock that is acquired by one `Call`, blocking or awaiting; a block yields its hold."""

    _cancel_on_loss: bool

    @abstractmethod
    def _acquisition(
        self, blocking: bool, timeout: Any, entered: Callable[[_H], object] | None = None
    ) -> Call[_H | None]:
        """Return the call that takes the lock, and returns its hold, or None if it is busy.

        :param entered: called with the hold when a block begins; a busy lock raises then
        """

    async def aacquire(self, blocking: bool = True, timeout: Any = UNSET) -> bool:
        """Take the lock as `acquire` does, without a thread for the wait."""
        if self._cancel_on_loss:
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
        if self._cancel_on_loss:
            cancellation.begin(self, hold)

    def __enter__(self) -> _H:
        if self._cancel_on_loss:
            cancellation.refuse_without_block(self)
        return self._entry(self._entered).run()

    def _entry(self, entered: Callable[[_H], object]) -> Call[_H]:
        # The cast before the call is run: an interrupt after it would leave the lock held.
        return cast("Call[_H]", self._acquisition(True, UNSET, entered))

    @abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    async def __aenter__(self) -> _H:
        return await self._entry(self._aentered).arun()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        loss = cancellation.end(self, error) if self._cancel_on_loss else None
        self.__exit__(kind, error, traceback)
        if loss is not None:
            raise loss from error
