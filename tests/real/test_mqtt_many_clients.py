"""Ever new client ids with sessions and wills: bounds answer as declared, others are served, all of it ends."""

from __future__ import annotations

import asyncio

import pytest
from mqtt_many_clients_run import ManyOptions, run

QUOTA = 0x97


@pytest.mark.parametrize(
    ("stored", "ids", "most", "expiry_s"),
    [(300, 200, 400, 5), pytest.param(50_000, 5_000, 53_000, 60, marks=pytest.mark.long)],
    ids=["few", "many"],
)
def test_MQ_245_beyond_the_bound_of_sessions_new_clients_are_refused_and_all_is_collected(
    tmp_path, stored, ids, most, expiry_s
):
    options = ManyOptions(ids, expiry_s, stored, at_once=8)
    found = asyncio.run(run(tmp_path, options, "--max-sessions", str(most)))
    taken = found.codes[0]
    assert set(found.codes) == {0, QUOTA}
    assert taken + found.codes[QUOTA] == ids
    assert taken == most - stored - 2  # those that look have sessions, too
    assert found.wills == stored + taken
    assert (found.sessions_left, found.wills_left) == (2, 0)
    assert found.lines <= 2
    assert found.memory_mib < 200
