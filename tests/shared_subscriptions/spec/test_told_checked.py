"""Systems in which hosts and applications are told something: groups declared and destroyed, private subscriptions."""

from __future__ import annotations

import pytest

from statemachines.shared_subscriptions import returned_messages
from statemachines_spec.explorer.explore import explore
from statemachines_spec.liveness.judge import live
from statemachines_spec.shared_subscriptions import SPEC, application_systems, declaration_systems, private_systems

NAMES = (*declaration_systems.ABOUT, *private_systems.ABOUT, *application_systems.ABOUT)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_told_holds_and_is_told_at_last(name):
    made = SPEC.system(name)
    found = explore(made, engine="plain", hashing=False)
    assert found.path is None
    assert not [one for one, times in found.sometimes.items() if not times]
    assert all(one.is_held for one in live(SPEC.system(name), SPEC.obligations(made), engine="plain"))


def test_L13_a_task_that_nobody_tells_waits_for_itself(monkeypatch):
    monkeypatch.setattr(returned_messages, "find_awaited", lambda reading, offset: None)
    found = explore(application_systems.build("application-waits"), engine="plain", hashing=False)
    assert found.path.broken.startswith("L13")
