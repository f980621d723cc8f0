"""Ways that nothing heals, explored: a writer that no owner hears, and an owner without its database."""

from __future__ import annotations

import pytest

from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.explore import COMPLETE, explore
from statemachines_spec.liveness.judge import live
from statemachines_spec.persistent_sessions import SPEC


def broken(name):
    """What breaks; of what must be met sooner or later only where everything else holds."""
    made = SPEC.system(name)
    entries = Entries(made)
    result = explore(made, engine="plain", hashing=False, entries=entries)
    found = {one for one, held in result.always.items() if not held}
    if found:
        return found
    assert result.ended == COMPLETE
    judged = live(made, made.obligations, engine="plain", entries=entries)
    assert not any(one.bounded for one in judged), "something is claimed of every part"
    return {one.name for one in judged if not one.is_held}


@pytest.mark.parametrize(
    ("bug", "name", "what"),
    [
        ("silence-is-borne", "unheard-writer", {"ENDS"}),
        ("fenced-rows-forgotten", "unheard-writer", {"COMPLETE"}),
        ("link-is-not-watched", "unheard-writer", {"COMPLETE"}),
        ("old-goes-on", "owner-without-database", {"SPLIT"}),
        ("handed-and-not-counted", "owner-without-database", {"TWICE"}),
        ("refusal-waited-out", "owner-without-database", {"ENDS", "TAKES"}),
    ],
)
def test_a_mistake_is_found_where_a_way_does_not_work(bug, name, what):
    with plant_bug(f"persistent_sessions/{bug}"):
        assert broken(name) == what
