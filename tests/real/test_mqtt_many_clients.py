"""Ever new client ids with sessions and wills: bounds answer as declared, others are served, all of it ends."""

from __future__ import annotations

import pytest
from run import run_seed

QUOTA = 0x97


@pytest.mark.parametrize(
    ("stored", "ids", "most", "expiry_s"),
    [(300, 200, 400, 5), pytest.param(50_000, 5_000, 53_000, 60, marks=pytest.mark.long)],
    ids=["few", "many"],
)
def test_MQ_245_beyond_the_bound_of_sessions_new_clients_are_refused_and_all_is_collected(
    tmp_path, stored, ids, most, expiry_s
):
    options = {"ids": ids, "expiry_s": expiry_s, "stored": stored, "at_once": 8, "max_sessions": most}
    _, found, wrong = run_seed("crowd", tmp_path, str(tmp_path / "s.db"), 1, 0, **options)
    assert wrong == [], "sessions and wills are collected"
    codes = found["codes"]
    taken = codes[0]
    assert set(codes) == {0, QUOTA}
    assert taken + codes[QUOTA] == ids
    assert taken == most - stored - 2  # those that look have sessions, too
    assert found["wills"] == stored + taken
    assert found["lines"] <= 2
    assert found["memory_mib"] < 200
