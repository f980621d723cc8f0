"""Takeovers as scripts whose every line is held against what the machines do."""

from __future__ import annotations

from pathlib import Path

import pytest
from takeover_stage import perform

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_what_happens_is_what_the_script_says(path, pytestconfig):
    script = path.read_text()
    happened = perform(script)
    if pytestconfig.getoption("--gapless-rewrite"):
        path.write_text(happened)
    else:
        assert happened == script, (
            f"{path.name}: other things happen; if they are right, run pytest with --gapless-rewrite"
        )


def test_the_main_scenarios_are_there():
    assert len(SCRIPTS) >= 5


@pytest.mark.parametrize(("line", "reason"), [("dance a", "is no input"), ("deliver 7", "does not fit")])
def test_what_is_no_input_is_named_with_its_line(line, reason):
    with pytest.raises(ValueError, match=f"line 2: .*{reason}"):
        perform(f"# a comment\n{line}\n")
