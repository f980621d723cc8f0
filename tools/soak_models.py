"""Models: what a soak plays without processes of its own: simulated runs, what Hypothesis drives, what the explorer
walks and finds, and fuzzed frames."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import seed as hypothesis_seed
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from soak_totals import OUT, Totals, empty_folder

from statemachines import catalogue, registry
from statemachines.testing.bug_search import find, fix_draws
from statemachines.testing.frames import fuzz
from statemachines.testing.shared_subscriptions.group import GROUP, GroupTest, PropertyBroken
from statemachines.testing.shared_subscriptions.readers import READERS
from statemachines.testing.system_test import CLOSED, SystemTest
from statemachines.testing.system_test import PropertyBroken as SystemBroken
from statemachines.testing.two_judges import list_disagreements
from statemachines_reports.damage.damage_matrix import count_cells, open_trial, try_all
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import find_scenario, list_shipped_with
from statemachines_spec import certificates
from statemachines_spec.explorer.explore import COMPLETE, explore
from statemachines_spec.protocol import all_parts
from statemachines_spec.shared_subscriptions.systems import system

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "shared_subscriptions"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "persistent_sessions"))

from process_world import ProcessWorld
from session_host_world import SessionHostWorld
from two_phase_commit import SPEC

SEEN = 0.85
"""This share of the kinds that a trace can have is seen in most tries, at least, in a single run."""

DAMAGED = (
    "shared_subscriptions/storm",
    "persistent_sessions/sessions_storm",
    "missed_samples/random_loss",
    "sequence_windows/any_weather",
    "cursor_recovery/deaths",
)
"""Scenarios whose traces are damaged, one in a round."""

SESSION_SHARE = 10
"""A step of a world of sessions asks a database, and is that much dearer than one of shared subscriptions."""

SYSTEMS = ("late-copies", "borrower-crash", "unsubscribe", "revoke-timeout", "reordering", "false-timeouts")
"""Closed systems that Hypothesis drives, one in a round."""


def simulate(totals: Totals, scenario: str, seeds: int) -> None:
    """Some more seeds of a scenario."""
    first = totals.seed * seeds
    for outcome in campaign(find_scenario(scenario), range(first, first + seeds)):
        totals.runs += 1
        totals.faults += sum(outcome.faults.values())
        totals.delivered += outcome.tally["delivered"]
        if not outcome.is_held:
            what = f"{scenario} seed {outcome.seed}: {outcome.monitor}: {outcome.detail}"
            totals.count_violations(what, again=f"gapless simulate {scenario} --seed {outcome.seed}")


def fuzz_frames(totals: Totals, count: int) -> None:
    """Whatever is read, nothing but a FrameError may come of it."""
    came = fuzz(READERS, totals.seed, count)
    totals.frames += came.inputs
    totals.frames_refused += came.refused


def drive(totals: Totals, examples: int) -> None:
    """Whole groups and a closed system under other examples than in any earlier round; a seed repeats them anywhere."""
    group = hypothesis_seed(totals.seed)(type("SoakedGroup", (GroupTest,), {}))
    closed = hypothesis_seed(totals.seed)(SystemTest.of(system(SYSTEMS[totals.seed % len(SYSTEMS)], "small")))
    before = GroupTest.moves
    try:
        with fix_draws():
            run_state_machine_as_test(group, settings=settings(GROUP, derandomize=False, max_examples=examples))
            run_state_machine_as_test(closed, settings=settings(CLOSED, derandomize=False, max_examples=examples))
    except (PropertyBroken, SystemBroken) as broken:
        totals.count_violations(str(broken))
    totals.moves += GroupTest.moves - before + closed.moves


def restore_processes(totals: Totals, inputs: int) -> None:
    """Declared processes go on from their value as before, whatever they hear."""
    with TemporaryDirectory() as folder:
        sessions = SessionHostWorld(Path(folder) / "sessions.db", totals.seed)
        steps = ((ProcessWorld(totals.seed), inputs), (sessions, inputs // SESSION_SHARE))
        try:
            for world, count in steps:
                for _ in range(count):
                    world.step()
        except AssertionError as wrong:
            totals.count_violations(f"a process that was made anew goes on otherwise (seed {totals.seed}): {wrong}")
        SessionHostWorld.close_all()
    totals.restored += sum(count for _, count in steps)


def judge_twice(totals: Totals, scenarios: int) -> None:
    """Some scenarios of all protocols, the next ones in the next round: monitors and the judge of the trace agree."""
    names = [
        f"{one}/{name}"
        for one in registry.names()
        if "sim" in registry.protocol(one).areas
        for name in list_shipped_with(one)
    ]
    for place in range(totals.seed * scenarios, (totals.seed + 1) * scenarios):
        scenario = find_scenario(names[place % len(names)])
        totals.count_violations(*list_disagreements([scenario], (totals.seed,), OUT / "judges"))


def damage_traces(totals: Totals, tries: int) -> None:
    """Each kind of damage to a simulated run of some protocol, the next one in the next round."""
    name = DAMAGED[totals.seed % len(DAMAGED)]
    folder = empty_folder("damage")
    campaign(find_scenario(name), range(totals.seed, totals.seed + 1), out=folder)
    with open_trial(folder) as trial:
        found = list(try_all(trial, range(totals.seed, totals.seed + tries)))
    totals.damages += sum(one.tried for one in found)
    totals.damages_seen += sum(one.seen for one in found)
    cells, seen = count_cells(found)
    if seen < SEEN * cells:
        unseen = ", ".join(one.kind for one in found if 2 * one.seen <= one.tried)
        totals.count_violations(f"{name}: {seen} of {cells} kinds of damage are seen, not {unseen}")


def explore_again(totals: Totals, states_max: int) -> None:
    """One system of some protocol, the next one in the next round, against its certificate; and one planted bug, by
    all directed systems.  They are so many that `make test` has only those which take seconds."""
    kept = [one for one in certificates_of_all() if one.states <= states_max]
    certificate = kept[totals.seed % len(kept)]
    result = explore(certificates.system_of(certificate))
    totals.explored += result.states
    about = f"{certificate.protocol}, {certificate.system}, {certificate.size}"
    totals.count_violations(*(f"{about}: {one}" for one in certificates.list_differences(certificate, result)))
    bugs = [(name, bug) for name, part in all_parts().items() for bug in part.bugs]
    protocol, bug = bugs[totals.seed % len(bugs)]
    if find(protocol, bug, "exploration").what:
        totals.bugs_found += 1
    else:
        totals.count_violations(f"{protocol}: exploration does not find {bug.name}")


def explore_commit(totals: Totals, managers: int) -> None:
    """Two-phase commit, as examples/ has it: as many states as can be counted by hand.

    Before a decision, each resource manager is in one of 4 states; after a commit in one of 2, after an abort of 6.
    """
    result = explore(SPEC.system("direct", str(managers)), threads=2)
    totals.explored += result.states
    if (result.ended, result.states) != (COMPLETE, 4**managers + 2**managers + 6**managers) or not result.is_held:
        totals.count_violations(f"two-phase commit of {managers}: {result.ended}, {result.states} states")


def certificates_of_all() -> list[certificates.Certificate]:
    """Every certificate that is kept."""
    folders = [catalogue.page(name).with_name("certificates") for name in all_parts()]
    return [certificates.read(path) for folder in folders for path in sorted(folder.glob("*.json"))]
