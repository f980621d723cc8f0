"""Fixed draws: what a search draws does not change with what the process has loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from contextlib import nullcontext
from hypothesis import HealthCheck, given, settings, strategies as st
from statemachines.testing.bug_search import fix_draws

@settings(max_examples=200, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(max_size=20), st.integers(), st.floats())
def look(text, whole, real):
    seen.append(repr((text, whole, real)))

def drawn():
    seen.clear()
    look()
    return list(seen)

seen = []
with fix_draws() if sys.argv[1] == "fixed" else nullcontext():
    before = drawn()
    import full_of_constants
    after = drawn()
print(before == after)
"""


def draws_stay(folder, how):
    """Whether two runs draw the same, between which a local module is loaded."""
    lines = [f"N{number} = {10**9 + number}, 'word{number}', {number}.25" for number in range(300)]
    (folder / "full_of_constants.py").write_text("\n".join(lines))
    (folder / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "program.py", how], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout == "True\n"


@pytest.mark.long
def test_draws_do_not_change_with_what_is_loaded(tmp_path):
    assert draws_stay(tmp_path, "fixed")


@pytest.mark.long
def test_without_it_they_do(tmp_path):
    """What this guards against is still there; when it is not, `fixed_draws` can go."""
    assert not draws_stay(tmp_path, "as usual")
