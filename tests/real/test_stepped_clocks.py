"""A group of real processes whose leader hosts' wall clocks step: `run.py groups` does that and everything else."""

from __future__ import annotations

import os
import time

import pytest
from groups_judge import acknowledged
from groups_workload import LEADERS, LINES, TOPICS, GroupRun, begin, finish
from stage import CALM
from stored_group import TENTH

from statemachines.testing.postgres import run_sql

TIMES = {**TENTH, **CALM, "idle_stop_ms": 60_000}
"""Nobody is to be given up; who follows goes on following."""

DAY_S = 86_400
STEPS = (DAY_S, -DAY_S, 20)


@pytest.fixture
def url(postgres_server):
    """An empty database of PostgreSQL."""
    name = f"stepped_{os.getpid()}"
    run_sql(postgres_server, f"CREATE DATABASE {name} TEMPLATE template0")
    return f"{postgres_server.rpartition('/')[0]}/{name}"


def until(holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "never came true"
        time.sleep(0.02)


@pytest.mark.long
def test_SS_120_wall_clocks_that_step_change_nothing_where_claims_are_in_postgresql(tmp_path, url):
    """By a day to and fro, of the host that leads and of the one that follows: the claim stays, nothing comes again."""
    with GroupRun(tmp_path, url, seed=3, times=TIMES) as run:
        begin(run)
        publisher = run.publish("publisher")
        for seconds in STEPS:
            for name in LEADERS:
                run.set_clock(name, seconds)
            wanted = min(len(acknowledged(run.all_lines())) + 20, TOPICS * LINES)
            until(lambda wanted=wanted: len(acknowledged(run.all_lines())) >= wanted)
        said = "".join((tmp_path / f"{name}.err").read_text() for name in LEADERS)
        finish(run, publisher)
        assert run.judge() == ([], 0)
    assert said.count("leads it, under epoch 1") == 1
    assert said.count("leads it, under") == 1, "somebody else took the claim"
    assert "is no member any more: it expired" not in said
