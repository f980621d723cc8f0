"""Properties that are broken by hand, as text: a title whose first word is the property, and below it runs.

    ONCE a number is told again
        come(0); deliver(0); ! deliver(0)
        Bench(retries=1): come(0); deliver(0); ! deliver(0)

A run is calls of a hand's methods; before `: ` stands another hand than `HAND()`.  What stands behind `!` breaks the
property, and nothing else breaks any.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from statemachines.testing.steps_words import StepsWords, split_outside
from statemachines_sim.judge import Violation


def runs_of(text, words):
    """A test with a case for each run of the text; `words`: name -> value, `HAND` among them."""
    cases, title = [], ""
    for line in Path(text).read_text(encoding="utf-8").replace("\\\n", "").splitlines():
        if line.startswith("    "):
            cases.append(pytest.param(title.partition(" ")[0], line, id=f"{title} {len(cases)}"))
        elif line:
            title = line

    @pytest.mark.parametrize(("name", "run"), cases)
    def test(name, run):
        given = StepsWords(words.__getitem__)
        *made, calls = split_outside(run, ": ")
        hand = given.evaluate(*made or ["HAND()"])
        given.update((one, getattr(hand, one)) for one in dir(hand) if not one.startswith("_"))
        for call in split_outside(calls, ";"):
            if call.startswith("! "):
                with pytest.raises(Violation, match=f"^{name}: "):
                    given.evaluate(call[2:])
            else:
                given.evaluate(call)

    return test
