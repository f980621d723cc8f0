"""A leading host that members do not reach (page, Reachability); all ways are in `make soak`."""

from __future__ import annotations

import pytest
from run import run_seed


@pytest.mark.long
def test_members_that_do_not_reach_the_leader_are_served_through_the_other_host(tmp_path):
    """What they say does not arrive there; a third one reaches the leader alone."""
    _, _, wrong = run_seed("unreachable", tmp_path, "", 1, 1, way="up")
    assert wrong == []
