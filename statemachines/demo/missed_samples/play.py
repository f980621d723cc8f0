"""The demo of missed samples: a real part over zenoh, and a simulated part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from statemachines.demo.input_lines import LineOptions
from statemachines.demo.protocol import Advance, DemoArguments, DemoGlance, DemoVerdict, PlayedDemo, Say, Trace
from statemachines.demo.simulated import simulate, verdict

if TYPE_CHECKING:
    from statemachines.demo.missed_samples.real import SampleRun
    from statemachines_sim.world import RunOutcome

SCENARIO = "missed_samples/lost_meanwhile"
SHARE = 20
"""One of so many simulated runs that are asked for is made."""
PROPERTIES = "NOGAP to REPLIES"


class SampleDemo:
    """Watch samples get lost on a link of real zenoh, and every one of them come after all, in order."""

    title = "Missed samples: what was lost comes after all"
    options = LineOptions

    def check(self, given: DemoArguments) -> None:
        options: LineOptions = given.options
        options.check()

    def play(self, out: Path, given: DemoArguments, say: Say, advance: Advance) -> PlayedDemo:
        """Real, then simulated."""
        from statemachines.demo.missed_samples import real

        options: LineOptions = given.options
        came = real.run(out / "real", options.place, say, advance)
        say(f"real: {came.lost} batches lost; {render_comparison(came)}; {came.seconds:.0f} s")
        simulated, outcomes = simulate(SCENARIO, out / "sim", max(given.seeds // SHARE, 1), say, advance, too_tame)
        queries = sum(one.tally["queries"] for one in outcomes)
        say(f"simulated: {simulated.runs} runs, {queries:,} queries; {simulated.seconds:.0f} s")
        return PlayedDemo(
            f"Lines over real zenoh, through a link that dropped {came.lost:,} batches of a TCP stream, "
            "as a router does that dies; a publisher and the router "
            "were killed. What subscribers got is compared with what was published. The same machines in "
            f"{simulated.runs} simulated runs. Spark judges what was asked for and told.",
            (*real_lines(came), verdict(simulated, PROPERTIES)),
            (
                Trace("real", "Real zenoh", out / "real" / "trace"),
                Trace("simulated", "Simulated queries", out / "sim"),
            ),
            (*came.wrong, *simulated.wrong),
            {"real": came, "simulated": simulated},
            DemoGlance(
                f"a link that lost {came.lost:,} batches; SIGKILL to a publisher and the router",
                (
                    (sum(one.delivered for one in came.accounts), "samples delivered"),
                    (sum(one.silent for one in came.accounts), "lost"),
                    (sum(one.missed for one in came.accounts), "reported as lost"),
                ),
            ),
        )


def render_comparison(came: SampleRun) -> str:
    """Ours beside zenoh's own subscriber."""
    recovered, undelivered, missed = (
        sum(getattr(one, name) for one in came.accounts) for name in ("recovered", "undelivered", "missed")
    )
    theirs = came.theirs
    return (
        f"{recovered} asked for, {undelivered} undelivered and {missed} of them reported; zenoh's own subscriber left "
        f"{theirs.undelivered} undelivered, and reported {theirs.missed}"
    )


def real_lines(came: SampleRun) -> list[DemoVerdict]:
    """The verdicts of the subscribers' own files; those of zenoh's own subscriber are figures, and no verdict."""
    accounts = came.accounts
    whole = not any(one.silent or one.foreign for one in accounts)
    once = not any(one.twice or one.late for one in accounts)
    sums = f"{sum(one.delivered for one in accounts):,} delivered"
    return [
        DemoVerdict(
            "real", "every sample comes or is reported (own files)", whole, f"{sums}, {render_comparison(came)}"
        ),
        DemoVerdict("real", "once and in order (own files)", once, sums),
        DemoVerdict(
            "real", "the link lost samples, and they were asked for", has_shown_recovery(came), f"{came.lost} batches"
        ),
    ]


def has_shown_recovery(came: SampleRun) -> bool:
    """The run shows what it is for."""
    return came.lost > 0 and all(one.recovered > 0 for one in came.accounts)


def too_tame(outcome: RunOutcome) -> str:
    """What a simulated run lacks ("": nothing)."""
    if outcome.tally["delivered"] < 1_000 or not outcome.tally["queries"]:
        return f"{outcome.tally['delivered']} deliveries, {outcome.tally['queries']} queries"
    return ""
