"""A crowd under one client id: so many clean starts at once over two nodes, from one process, and its judge.

    python tests/real/clean_starts_run.py --clients 2000
    python tests/real/clean_starts_run.py --clients 2000 --store postgresql://USER@HOST:PORT/DATABASE

Every client hears how it ended: it was connected (and perhaps superseded by the next), or superseded while it waited;
one has the session at the end, and it is the only one in the tables.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from sessions_run import nodes_of, read

from statemachines.drivers.persistent_sessions import PersistentSession
from statemachines.drivers.persistent_sessions.persistent_session import SessionTaken
from statemachines.kernel import GaplessError

CLIENT = "crowd"
SETTLE_S = 30
"""So long the last of the crowd may take to learn that it is the last."""


class Crowd:
    """What became of each: `ended` says how; `open` ones are connected, as far as they know."""

    def __init__(self):
        self.ended = Counter()
        self.open = {}
        self.sessions = set()

    async def come(self, number, nodes, over):
        """Start clean, and stay until somebody else has the client id, or all is over."""
        session = PersistentSession(CLIENT, nodes=nodes, clean_start=True, patience_s=120)
        try:
            async with session:
                self.sessions.add(session.session)
                self.open[number] = session
                waits = asyncio.ensure_future(anext(session))
                gone = asyncio.ensure_future(over.wait())
                await asyncio.wait((waits, gone), return_when=asyncio.FIRST_COMPLETED)
                gone.cancel()
                if waits.done():
                    waits.result()
                else:
                    waits.cancel()
            self.ended["stayed"] += 1
        except SessionTaken:
            self.ended["superseded" if number in self.open else "superseded before it was connected"] += 1
        except GaplessError as error:
            self.ended[f"{type(error).__name__}: {error}"] += 1
        finally:
            self.open.pop(number, None)


async def gather(clients, folder, store):
    """(what became of them, the sessions in the tables while one was there, seconds)."""
    async with nodes_of(folder, store) as nodes:
        addresses = [node.address for node in nodes]
        crowd, over = Crowd(), asyncio.Event()
        began = time.monotonic()
        tasks = [
            asyncio.ensure_future(crowd.come(number, addresses[number % 2 :] + addresses[: number % 2], over))
            for number in range(clients)
        ]
        while sum(crowd.ended.values()) < clients - 1:
            await asyncio.sleep(0.05)
        took = time.monotonic() - began
        end = time.monotonic() + SETTLE_S
        while not crowd.open and time.monotonic() < end:
            await asyncio.sleep(0.05)
        left = [bytes(one).decode() for (one,) in read(store, "SELECT session FROM @sessions")]
        (last,) = crowd.open.values()
        over.set()
        await asyncio.gather(*tasks)
        return crowd.ended, left == [last.session], took


def run_crowd(clients, folder, store):
    """How they ended, whether one session was left and was the last one's, and how long it took, in seconds."""
    return asyncio.run(asyncio.wait_for(gather(clients, folder, store), 600))


def main():
    """1: something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=2_000, help="how many come at once")
    parser.add_argument("--store", default="", help="URL of PostgreSQL; a file of SQLite otherwise")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="clean-starts-"))
    ended, one, took = run_crowd(given.clients, folder, given.store or str(folder / "sessions.db"))
    print(f"{given.clients} clean starts: {dict(ended)}; one session is left: {one}; {took:.1f} s")
    return int(not one or sum(count for how, count in ended.items() if ":" in how))


if __name__ == "__main__":
    sys.exit(main())
