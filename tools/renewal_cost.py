"""Renewal cost: what a leader pays to renew the claims of its groups, on SQLite and on PostgreSQL.

    python tools/renewal_cost.py --groups 10 --rounds 200

A renewal is the batch that a leader commits each `claim_heartbeat`: the claim and the root, each expected as it was
read.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from statemachines.drivers.shared_subscriptions.open_stores import open_stores
from statemachines.drivers.shared_subscriptions.store import RecordDatabase
from statemachines.shared_subscriptions.group_store import Claim, Commit, Committed, StoredRecord
from statemachines.shared_subscriptions.names import CLAIM, record_key
from statemachines.testing.postgres import PostgresServer

OURS = Claim("leader~1/1", 1)


def list_keys(group: int) -> tuple[str, str]:
    """The keys of its claim and of its root."""
    return record_key(f"g{group}", "#", CLAIM), record_key(f"g{group}", "#", "root")


async def renew(store: RecordDatabase, group: int, root: int, stamp: int | None) -> int:
    """Commit the claim and the next root; the stamp of the batch."""
    before = (None, None) if stamp is None else (StoredRecord(OURS, stamp), StoredRecord(root - 1, stamp))
    keys = list_keys(group)
    request = Commit(root, tuple(zip(keys, before, strict=True)), tuple(zip(keys, (OURS, root), strict=True)))
    (answer,) = await store.ask(request)
    assert isinstance(answer, Committed), answer
    return answer.stamp


async def measure(name: str, url: str, groups: int, rounds: int) -> None:
    """Renew the claims of so many groups, one after the other; say what one took."""
    stores = await asyncio.to_thread(open_stores, url)
    stamps = [await renew(stores.groups, group, 0, None) for group in range(groups)]
    took_s, cpu_s = [], time.process_time()
    for root in range(1, rounds + 1):
        for group in range(groups):
            began = time.perf_counter()
            stamps[group] = await renew(stores.groups, group, root, stamps[group])
            took_s.append(time.perf_counter() - began)
    cpu_s = time.process_time() - cpu_s
    took_s.sort()
    count = len(took_s)
    median_ms, late_ms = (1_000 * took_s[count * part // 100] for part in (50, 99))
    print(
        f"{name}: {count} renewals, median {median_ms:.2f} ms, 99 % below {late_ms:.2f} ms, "
        f"{1_000 * cpu_s / count:.2f} ms of processor time each"
    )
    await stores.groups.close()
    await stores.streams.close()


def main() -> None:
    """Both stores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=200, help="renewals of each group (default 200)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure("SQLite", str(Path(folder) / "messages.db"), given.groups, given.rounds))
    with PostgresServer() as server:
        asyncio.run(measure("PostgreSQL", server.database("renewals"), given.groups, given.rounds))


if __name__ == "__main__":
    main()
