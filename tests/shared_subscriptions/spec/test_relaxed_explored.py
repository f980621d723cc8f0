"""Groups in relaxed order, explored: S6 and S13 hold with holes, over the death of a member and of a leader."""

from __future__ import annotations

import pytest

from statemachines.shared_subscriptions import relaxed_order
from statemachines_spec.explorer.explore import explore
from statemachines_spec.shared_subscriptions.failure_systems import RELAXED, build_relaxed


def explored(name):
    return explore(build_relaxed(name, *RELAXED[name]))


@pytest.mark.parametrize(
    "name", ["relaxed order", "relaxed death", pytest.param("relaxed crash", marks=pytest.mark.long)]
)
def test_SS_407_nothing_is_lost_and_nothing_comes_twice_without_a_reason(name):
    found = explored(name)
    assert all(found.always.values()), found.always
    assert found.sometimes["hole"]


def test_S6_breaks_where_progress_passes_a_hole(monkeypatch):
    def join(progress, *parts):
        return max([progress, *(last + 1 for part in parts for _, last in part)]), ()

    monkeypatch.setattr(relaxed_order, "join_all_ranges", join)
    found = explored("relaxed order")
    assert {name.split()[0] for name, held in found.always.items() if not held} & {"S6"}
