"""The small certificates of the repository say what the shipped machines do.

After a change of a table or a record: gapless check shared_subscriptions --certify DIR, DIR being the folder below.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from statemachines_spec import certificates
from statemachines_spec.explorer.explore import explore
from statemachines_spec.shared_subscriptions.systems import SYSTEMS

FOLDER = Path(__file__).parents[3] / "spec" / "shared_subscriptions" / "certificates"


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_small_certificate_is_what_exploring_again_comes_to(name):
    kept = certificates.read(FOLDER / f"{name}-small.json")
    assert (kept.system, kept.size, kept.variant) == (name, "small", "settled")
    result = explore(certificates.system_of(kept))
    assert certificates.differences(kept, result) == []


def test_a_certificate_of_millions_of_states_is_what_exploring_again_comes_to():
    kept = certificates.read(FOLDER / "two-leaders-ci.json")
    result = explore(certificates.system_of(kept))
    assert result.states >= 1_000_000
    assert certificates.differences(kept, result) == []
