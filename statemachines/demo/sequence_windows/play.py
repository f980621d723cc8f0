"""The demo of sequence windows: a real part over UDP multicast, and a simulated part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from statemachines.demo.input_lines import LineOptions
from statemachines.demo.protocol import Advance, DemoArguments, DemoGlance, DemoVerdict, PlayedDemo, Say, Trace
from statemachines.demo.simulated import simulate, verdict

if TYPE_CHECKING:
    from statemachines.demo.sequence_windows.real import WindowRun
    from statemachines_sim.world import RunOutcome

SCENARIO = "sequence_windows/crowded"
SHARE = 20
"""One of so many simulated runs that are asked for is made: each has a thousand messages to seven receivers."""
PROPERTIES = "MONO to NOTIFY"


class LossDemo:
    """Watch lines go over multicast, some of them lost on the way, and receivers say exactly how many."""

    title = "Sequence windows: every loss counted"
    options = LineOptions

    def check(self, given: DemoArguments) -> None:
        options: LineOptions = given.options
        options.check()

    def play(self, out: Path, given: DemoArguments, say: Say, advance: Advance) -> PlayedDemo:
        """Real, then simulated."""
        from statemachines.demo.sequence_windows import real

        options: LineOptions = given.options
        came = real.run(out / "real", options.place, say, advance)
        dropped = sum(one.dropped for one in came.accounts)
        say(f"real: {came.sent} messages, {dropped} losses in {len(came.accounts)} receivers; {came.seconds:.0f} s")
        simulated, outcomes = simulate(SCENARIO, out / "sim", max(given.seeds // SHARE, 1), say, advance, too_tame)
        lost = sum(one.tally["lost"] for one in outcomes)
        say(f"simulated: {simulated.runs} runs, {lost:,} losses; {simulated.seconds:.0f} s")
        return PlayedDemo(
            f"{came.sent:,} lines over UDP multicast; what receivers told is compared with what a forwarder dropped. "
            f"The same machines in {simulated.runs} simulated runs with {lost:,} losses. Spark judges what was told "
            "against what the networks lost.",
            (*real_lines(came), verdict(simulated, PROPERTIES)),
            (
                Trace("real", "Real multicast", out / "real" / "trace"),
                Trace("simulated", "Simulated multicast", out / "sim"),
            ),
            (*came.wrong, *simulated.wrong),
            {"real": came, "simulated": simulated, "lost": lost},
            DemoGlance(
                f"a network that dropped {dropped:,} messages, and said nothing",
                (
                    (came.sent, "messages"),
                    (dropped - sum(one.told for one in came.accounts), "losses not told"),
                    (dropped, "losses told exactly"),
                ),
            ),
        )


def real_lines(came: WindowRun) -> list[DemoVerdict]:
    """The verdicts of the processes' own files."""
    accounts = came.accounts
    told, dropped = sum(one.told for one in accounts), sum(one.dropped for one in accounts)
    exact = not any(one.wrong or one.unknown for one in accounts)
    whole = not any(one.missing or one.twice or one.foreign for one in accounts)
    advised = all(one.advised == one.told and one.shown in (-1, one.told) for one in accounts)
    sums = f"{sum(one.advised for one in accounts):,} advised"
    came_in = f"{sum(one.came for one in accounts):,} came, {came.repeated} sent twice"
    return [
        DemoVerdict(
            "real", "what is told is what the forwarder dropped (own files)", exact, f"{told:,} of {dropped:,}"
        ),
        DemoVerdict("real", "everything else comes, once (own files)", whole, came_in),
        DemoVerdict("real", "advisories and show-loss say the same (own files)", advised, sums),
    ]


def too_tame(outcome: RunOutcome) -> str:
    """What a simulated run lacks ("": nothing)."""
    if outcome.tally["delivered"] < 1_000 or not outcome.tally["lost"]:
        return f"{outcome.tally['delivered']} deliveries, {outcome.tally['lost']} losses"
    return ""
