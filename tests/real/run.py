"""Runs of real processes that are hurt under a load, and what came of each.

    python tests/real/run.py sessions --first 7 --runs 3 --faults 12
    python tests/real/run.py groups --store postgresql://USER@HOST:PORT/DATABASE    (its tables are dropped)
    python tests/real/run.py sessions --store postgres                                (a server of its own)

A workload starts processes and keeps them busy; a plan of faults follows from the seed; a judge that shares nothing
with what it judges says what is wrong.  Exit code 1: something was.
"""

import argparse
import asyncio
import contextlib
import importlib
import sys
import tempfile
from pathlib import Path

from statemachines.testing.postgres import PostgresServer, run_sql

WORKLOADS = {
    "sessions": "sessions_workload:SessionsWorkload",
    "carried": "carried_workload:CarriedWorkload",
    "groups": "groups_workload:GroupsWorkload",
    "mqtt": "mqtt_workload:MqttWorkload",
    "shared": "mqtt_workload:SharedWorkload",
    "clean_starts": "progress_workload:CleanStartsWorkload",
    "progress": "progress_workload:ProgressWorkload",
    "many_topics": "crowd_workload:ManyTopicsWorkload",
    "unreachable": "crowd_workload:UnreachableWorkload",
    "crowd": "crowd_workload:CrowdWorkload",
    "once": "mqtt_workload:OnceWorkload",
}
COMMON = {"first": 1, "runs": 1, "faults": 8, "store": ""}


def find_workload(name):
    module, _, kind = WORKLOADS[name].partition(":")
    return getattr(importlib.import_module(module), kind)


async def play(workload, plan):
    """All of a run."""
    async with workload.open():
        for what in plan:
            await workload.pause()
            await workload.hurt(what)
        await workload.finish()


def run_seed(name, folder, store, seed, faults, **options):
    """A run, judged: how often what was done, what there was, and what is wrong."""
    workload = find_workload(name)(folder, store, seed, **options)
    asyncio.run(play(workload, workload.plan(faults)))
    wrong = workload.judge()
    return workload.done, workload.tally(), wrong


@contextlib.contextmanager
def prepare_store(store, workload, file):
    """Where tables are empty."""
    if store == "postgres":
        with PostgresServer() as server:
            yield server.database("gapless")
        return
    for schema in workload.schemas if store else ():
        run_sql(store, f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    yield store or str(file)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="workload", required=True)
    for name in WORKLOADS:
        workload = find_workload(name)
        command = commands.add_parser(name, description=workload.__doc__)
        for option, default in {**COMMON, **workload.options}.items():
            given = {"action": "store_true"} if default is False else {"type": type(default)}
            command.add_argument(f"--{option.replace('_', '-')}", default=default, help=f"default {default!r}", **given)
    return vars(parser.parse_args())


def main():
    given = read_options()
    name, first, runs, faults, store = (given.pop(one) for one in ("workload", *COMMON))
    failed = False
    for seed in range(first, first + runs):
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-{seed}-"))
        with prepare_store(store, find_workload(name), folder / "store.db") as where:
            done, said, wrong = run_seed(name, folder, where, seed, faults, **given)
        print(f"seed {seed}: {dict(sorted(done.items()))}, {said}, {len(wrong)} wrong; {folder}", flush=True)
        for what in wrong:
            print(f"  {what}")
        failed = failed or bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
