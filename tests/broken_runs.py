"""Properties that are broken by hand, as text: a title whose first word is the property, and below it runs.

    ONCE a number is told again
        come(0); deliver(0); ! deliver(0)
        Bench(retries=1): come(0); deliver(0); ! deliver(0)

A run is calls of a hand's methods; before `: ` stands another hand than `HAND()`.  What stands behind `!` breaks the
property, and nothing else breaks any.
"""

from pathlib import Path

import pytest

from statemachines.testing.steps import StepsWords, split_outside
from statemachines_sim.judge import Violation


class WatchHand:
    """Words of all hands: `watch`, and the `world` that it watches."""

    def tallies(self, counts):
        """It has counted these."""
        assert {**self.watch.tally(), **counts} == self.watch.tally()

    def tallies_only(self, counts):
        """And nothing else."""
        assert {name: count for name, count in self.watch.tally().items() if count} == counts

    def over(self):
        """Nothing is owed."""
        assert self.watch.missing(self.world) is None

    def still_open(self, name):
        """Something is owed, and nothing is broken yet."""
        assert self.watch.missing(self.world)[0] == name

    def at(self, t_ns):
        """Time passes."""
        self.world.env.run(until=t_ns)


def runs_of(text, words):
    """A test with a case for each run of the text; `words`: name -> value, `HAND` among them."""
    cases, titles = [], []
    for line in Path(text).read_text(encoding="utf-8").replace("\\\n", "").splitlines():
        if line.startswith("    "):
            cases.append(pytest.param(titles[-1].partition(" ")[0], line, id=f"{titles[-1]} {len(cases)}"))
        elif line:
            titles.append(line)
    empty = [title for title in titles if not any(case.id.startswith(title) for case in cases)]
    assert (len(titles) > 0, empty) == (True, []), f"{text}: no run stands below {empty or 'any title'}"

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
