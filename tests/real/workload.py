"""Workload: what a run of real processes has: how it is opened, what goes wrong, how it ends, and what is checked."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import ClassVar

from tests.waiting import pause_async


class Workload:
    """A run of one seed in a folder.  `options`: what the command line may say -> its default; `done` counts faults by
    name; `wrong` is what is wrong, in words."""

    options: ClassVar[dict] = {}
    schemas = ()
    """Of PostgreSQL: they are dropped before a run."""
    kinds = ()
    """What goes wrong, as often as it stands here."""
    pause_s = (0.2, 0.9)
    """Between two faults."""

    def __init__(self, folder, store, seed, **options):
        self.folder, self.store, self.seed = folder, store, seed
        self.chance = random.Random(seed)
        self.done, self.wrong = Counter(), []
        self.__dict__ |= {**self.options, **options}

    def fork_chance(self):
        return random.Random(self.chance.random())

    def plan(self, faults):
        """Before anything happens: a seed has its faults."""
        return self.chance.choices(self.kinds, k=faults) if self.kinds else []

    def open(self):
        """A context in which all processes run."""
        raise NotImplementedError

    async def pause(self):
        await pause_async(self.chance.uniform(*self.pause_s), "between two faults")

    async def hurt(self, what):
        """One fault."""
        raise NotImplementedError

    async def finish(self):
        """Until everything has come, or nothing comes any more."""

    def judge(self):
        return self.wrong

    def tally(self):
        """What there was, for who reads the outcome."""
        return {}


@contextlib.asynccontextmanager
async def run_beside():
    """What begins a task, which is gone when this is left."""
    tasks = []

    def begin(work):
        tasks.append(asyncio.ensure_future(work))
        return tasks[-1]

    try:
        yield begin
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
