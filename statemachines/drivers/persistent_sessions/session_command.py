"""`gapless sessions`: what an operator does with a store of sessions."""

from __future__ import annotations

import asyncio

import typer

from statemachines.drivers.persistent_sessions.node_commands import Store
from statemachines.drivers.signals import log_plainly, run_without_waiting
from statemachines.kernel import ConfigurationError

app = typer.Typer(no_args_is_help=True, help="Operate a store of persistent sessions.")


@app.callback()
def sessions() -> None:
    """Operate a store of persistent sessions."""


@app.command("accept-clock")
def accept_clock(store: Store) -> None:
    """Let ages count again, after the clock of the store was set ahead while nodes ran.

    Until then nothing expires and nothing is deleted for its age, and the log of every node says so. Look at the clock
    first: where it is wrong, set it back instead. What the clock has leapt over counts in no age.
    """
    log_plainly()
    print(asyncio.run(run_without_waiting(_accept(store))))


async def _accept(store: str) -> str:
    from statemachines.drivers.persistent_sessions.store import open_session_store, path_of
    from statemachines.drivers.sql.awaited import retry_while_unavailable

    path = path_of(store)
    if path is not None and not path.exists():
        raise ConfigurationError("store", store, "is not there; give the store whose clock was set")
    opened = await retry_while_unavailable(lambda: asyncio.to_thread(open_session_store, store), who="accept-clock")
    try:
        is_accepted = await opened.accept_clock()
    finally:
        await opened.close()
    return f"{opened.where}: {'ages count again' if is_accepted else 'ages count already; nothing was changed'}"
