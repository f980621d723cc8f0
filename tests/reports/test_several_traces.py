"""Several traces: only those that are compared must be of the same protocols; a demo judges all of its own together."""

from __future__ import annotations

import pytest

from statemachines.kernel import ConfigurationError
from statemachines_reports.pipeline import analyze_all
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import find_scenario


@pytest.mark.long
def test_traces_of_two_protocols_are_judged_together_and_not_compared(tmp_path):
    folders = []
    for name in ("shared_subscriptions/quiet", "cursor_recovery/undisturbed"):
        campaign(find_scenario(name), range(1), out=tmp_path / name / "trace", processes=1)
        folders.append((tmp_path / name / "trace", tmp_path / name / "out"))
    groups, queues = analyze_all(folders, spark=False, are_compared=False)
    assert (groups.is_held, queues.is_held) == (True, True)
    with pytest.raises(ConfigurationError, match="traces of the same protocols are compared"):
        analyze_all(folders, spark=False)
