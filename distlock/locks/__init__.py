"""The locks that users take: ports of Curator's recipes, and their operations.

`mutex`, `rwlock`, `semaphore` (with `held_permits`), `multilock` and `leader` are built on the wait
queue; `lock` has the options of each, and the sync and async ways into it. `deadlocks` looks for
cycles while a call waits; `revocation` asks a holder to leave, or deletes its node; `actions`
offers both to an operator. `cancellation` ends a block of async code whose lock is lost.
`held_permits` also releases what a request or a task has left held.
"""
