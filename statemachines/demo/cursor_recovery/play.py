"""The demo of cursor recovery: a real part between processes, and a simulated part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from statemachines.demo.input_lines import LineOptions
from statemachines.demo.protocol import Advance, DemoArguments, DemoGlance, DemoVerdict, PlayedDemo, Say, Trace
from statemachines.demo.simulated import simulate, verdict

if TYPE_CHECKING:
    from statemachines.demo.cursor_recovery.real import QueueRun
    from statemachines_sim.world import RunOutcome

SCENARIO = "cursor_recovery/deaths_and_stops"
SHARE = 10
"""One of so many simulated runs that are asked for is made: each has ten thousand accesses, and any could be cut."""
PROPERTIES = "INTEG to STALE"


class QueueDemo:
    """Watch log lines go through shared memory, while SIGKILL hits who writes them and who ships them."""

    title = "Cursor recovery: a queue whose processes may die at any step"
    options = LineOptions

    def check(self, given: DemoArguments) -> None:
        options: LineOptions = given.options
        options.check()

    def play(self, out: Path, given: DemoArguments, say: Say, advance: Advance) -> PlayedDemo:
        """Real, then simulated."""
        from statemachines.demo.cursor_recovery import real

        options: LineOptions = given.options
        came = real.run(out / "real", options.place, say, advance)
        account = came.account
        say(
            f"real: {account.shipped} of {account.acknowledged} lines shipped, {sum(came.killed.values())} SIGKILLs, "
            f"{came.seconds:.0f} s"
        )
        simulated, outcomes = simulate(SCENARIO, out / "sim", max(given.seeds // SHARE, 1), say, advance, too_tame)
        delivered = sum(one.tally["delivered"] for one in outcomes)
        say(f"simulated: {simulated.runs} runs, {delivered:,} blocks delivered; {simulated.seconds:.0f} s")
        return PlayedDemo(
            f"{account.acknowledged:,} lines through a queue in shared memory, whose writers and shippers are killed "
            f"{sum(came.killed.values())} times; the same machines in {simulated.runs} simulated runs under deaths and "
            "stops; every step of both judged by Spark.",
            (*real_lines(came), verdict(simulated, PROPERTIES)),
            (
                Trace("real", "Real queue", out / "real" / "trace"),
                Trace("simulated", "Simulated queues", out / "sim"),
            ),
            (*came.wrong, *simulated.wrong),
            {"real": came, "simulated": simulated, "delivered": delivered},
            DemoGlance(
                f"{sum(came.killed.values())} SIGKILLs to writers and readers",
                (
                    (account.acknowledged, "messages"),
                    (max(account.missing - came.lost, 0), "lost"),
                    (came.lost, "died with their reader"),
                ),
            ),
        )


def real_lines(came: QueueRun) -> list[DemoVerdict]:
    """The verdicts of the processes' own files."""
    account = came.account
    shippers = sum(count for node, count in came.killed.items() if node.startswith("shipper"))
    arrived = f"{account.acknowledged - account.missing:,} of {account.acknowledged:,}"
    came_in = f"{arrived}; {account.blocks} blocks with {shippers} killed"
    return [
        DemoVerdict("real", "what is acknowledged comes, or was in a killed shipper's hands (own files)",
                account.blocks <= shippers, came_in),
        DemoVerdict("real", "no line twice, none torn (own files)", not (account.twice or account.foreign),
                f"{account.twice} twice, {account.foreign} torn"),
    ]  # fmt: skip


def too_tame(outcome: RunOutcome) -> str:
    """What a simulated run lacks ("": nothing)."""
    if outcome.tally["delivered"] < 50 or sum(outcome.faults.values()) < 8:
        return f"{outcome.tally['delivered']} deliveries, faults {outcome.faults}"
    return ""
