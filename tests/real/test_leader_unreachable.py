"""A leading host that members do not reach (page, Reachability); all ways are in `make soak`."""

from __future__ import annotations

import pytest
from unreachable_run import run_case


@pytest.mark.long
def test_members_that_do_not_reach_the_leader_are_served_through_the_other_host(tmp_path):
    """What they say does not arrive there; a third one reaches the leader alone."""
    _, wrong = run_case(tmp_path, "up", stays=True)
    assert wrong == []
