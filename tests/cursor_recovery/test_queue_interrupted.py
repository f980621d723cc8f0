"""Operations that an exception breaks off, before any one instruction of the interpreter, or before two of them.

All places, and all pairs that are near each other, are played by `make soak`.
"""

import pytest

from statemachines.testing.cursor_recovery.interrupted_run import KINDS, play


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_an_operation_may_be_broken_off_before_any_instruction(kind, every):
    """Every seventh one; all in `make soak`."""
    count = play(kind)
    assert count > 100
    for place in range(1, count + 1, every):
        play(kind, place)
