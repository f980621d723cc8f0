"""Properties that are judged only where no message is in flight, by every search that there is."""

from __future__ import annotations

import pytest
from toy_system import toy

from statemachines_spec.explorer.direct import search
from statemachines_spec.explorer.explore import explore
from statemachines_spec.explorer.property import Always, Sometimes, View
from statemachines_spec.explorer.replay import replay

SAID = View("talker", 8, lambda local: local.n + 1)
TAKEN = View("listener", 80, lambda local: local.n)
ENGINES = pytest.mark.parametrize("engine", ["plain", "compiled"])


def all_taken(quiet):
    return Always("all taken", "what was said was taken", (SAID, TAKEN), lambda n, took: took == 10 * (n - 1), quiet)


@ENGINES
def test_what_is_in_flight_is_no_disagreement(engine):
    certain = {"in_flight": 1, "lossy": False, "duplicating": False}
    assert explore(toy(certain, properties=(all_taken(True),)), engine=engine).is_held
    always = explore(toy(certain, properties=(all_taken(False),)), engine=engine)
    assert (always.path.broken, len(always.path.legs), always.path.quiet) == ("all taken", 1, False)


@ENGINES
def test_what_was_lost_is_one(engine):
    one = toy({"in_flight": 1, "duplicating": False}, properties=(all_taken(True),))
    result = explore(one, engine=engine)
    assert (result.path.broken, len(result.path.legs), result.path.quiet) == ("all taken", 2, True)  # said, lost
    assert replay(one, result.path).broken == "all taken"


def test_the_plainest_search_judges_the_same():
    certain = {"in_flight": 1, "lossy": False, "duplicating": False}
    assert search(toy(certain, properties=(all_taken(True),)), 1000).broken == ""
    lossy = search(toy({"in_flight": 1, "duplicating": False}, properties=(all_taken(True),)), 1000)
    assert (lossy.broken, lossy.depth) == ("all taken", 2)


@ENGINES
def test_sometimes_counts_quiet_states_only(engine):
    # one word: start, said, taken; the last of them is quiet, and so is the first
    seen = [
        Sometimes(f"said {quiet}", "", (SAID,), lambda n: n == 2, quiet)
        for quiet in (False, True)
    ]  # fmt: skip
    result = explore(
        toy({"in_flight": 1, "lossy": False, "duplicating": False}, last=1, properties=tuple(seen)), engine=engine
    )
    assert result.sometimes == {"said False": 2, "said True": 1}


def test_a_path_that_ends_in_flight_is_not_judged_by_what_holds_where_it_is_quiet():
    one = toy({"in_flight": 1, "duplicating": False}, properties=(all_taken(True),))
    path = explore(one, engine="plain").path
    assert replay(one, type(path)(path.legs[:1], "", "", path.last, quiet=False)).broken == ""
