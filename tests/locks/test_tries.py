"""A try gets a lock that is free, whoever has given up waiting for it just before."""

from __future__ import annotations

import asyncio

import pytest

from distlock.session.registry import session_for
from tests.kit.helpers import eventually
from tests.kit.losses import beneficiaries
from tests.kit.tools import PATIENCE, settle
from tests.locks.test_lock import RECIPES

pytestmark = pytest.mark.usefixtures("tree")


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_try_gets_what_was_just_released_after_a_waiter_had_given_up(recipe: str) -> None:
    lock = RECIPES[recipe](timeout=None)
    rival = RECIPES["write" if recipe == "read" else recipe](timeout=None)

    async def hold_while_another_gives_up() -> None:
        async with lock:
            session = session_for()
            before = beneficiaries(session)
            waiting = asyncio.create_task(rival.aacquire())
            await asyncio.sleep(0)
            eventually(lambda: beneficiaries(session) > before, PATIENCE)
            settle(session)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    async def main() -> None:
        for _ in range(20):
            await hold_while_another_gives_up()
            assert await lock.aacquire(timeout=0)
            await lock.arelease()

    asyncio.run(main())
