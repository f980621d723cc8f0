"""The demo of shared subscriptions: a real part, the same on PostgreSQL if asked for, and a simulated part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from statemachines.demo.protocol import Advance, DemoArguments, DemoGlance, DemoVerdict, PlayedDemo, Say, Trace
from statemachines.demo.simulated import simulate, verdict
from statemachines.drivers.shared_subscriptions import text_lines as lines
from statemachines.kernel import ConfigurationError

if TYPE_CHECKING:
    from statemachines.demo.shared_subscriptions.real import GroupRun
    from statemachines_sim.world import RunOutcome

SCENARIO = "shared_subscriptions/storm"
STORES = ("sqlite", "postgres")
"""Where the real part keeps its messages; `postgres` adds a second, shorter real part."""

SHORT_INPUT = lines.OWN_SOURCE / "kernel"
"""What the second real part reads where no input is given."""

DELIVERIES, FAULTS, KINDS = 2_000, 10, 3
"""What each simulated run must have at least."""

PROPERTIES = "S1-S14, L1-L10"


class Options(msgspec.Struct, frozen=True):
    """Of the command."""

    input: Annotated[
        str,
        msgspec.Meta(
            description="PATH: a text file or folder: each file a topic, each line a message (default: our own source, "
            "repeated up to some 20 000 lines)"
        ),
    ] = ""
    store: Annotated[
        str,
        msgspec.Meta(description="sqlite|postgres: a second, shorter real run on a private PostgreSQL server"),
    ] = "sqlite"


class GroupDemo:
    """Watch a real consumer group lose a consumer to SIGKILL and no message.

    Two leader hosts, four consumers and a publisher run as processes over TCP and SQLite, and with `--store postgres`
    once more over PostgreSQL; then the same machines go through simulated runs.
    """

    title = "Shared subscriptions: a group that loses members and its leader"
    options = Options

    def check(self, given: DemoArguments) -> None:
        options: Options = given.options
        if options.store not in STORES:
            raise ConfigurationError("--store", options.store, f"must be {' or '.join(STORES)}")
        if options.input and not Path(options.input).exists():
            raise ConfigurationError("--input", options.input, "is no file and no folder")

    def play(self, out: Path, given: DemoArguments, say: Say, advance: Advance) -> PlayedDemo:
        """Real, on PostgreSQL, simulated."""
        from statemachines.demo.shared_subscriptions import real

        options: Options = given.options
        path = Path(options.input) if options.input else None
        parts = {"real": describe_part("real", real.run(out / "real", path, say, advance), say)}
        if options.store == "postgres":
            parts["postgres"] = describe_part("postgres", run_on_postgres(out / "postgres", path, say, advance), say)
        came, outcomes = simulate(SCENARIO, out / "sim", given.seeds, say, advance, too_tame)
        delivered = sum(one.tally["delivered"] for one in outcomes)
        listed = ", ".join(f"{count} {kind}" for kind, count in came.faults.items())
        say(f"simulated: {came.runs} runs, {delivered:,} messages delivered; {listed}; {came.seconds:.0f} s")
        first = parts["real"]
        return PlayedDemo(
            f"{first.lines:,} lines of {first.topics} files through a real consumer group that loses a consumer and "
            f"its leading host to SIGKILL; the same machines in {came.runs} simulated runs under failures; every step "
            "of both judged by Spark.",
            (*(line for name, one in parts.items() for line in real_lines(name, one)), verdict(came, PROPERTIES)),
            (
                *(Trace(name, NAMES[name], out / name / "trace") for name in parts),
                Trace("simulated", "Simulated runs", out / "sim"),
            ),
            (*(wrong for one in parts.values() for wrong in one.wrong), *came.wrong),
            {**parts, "simulated": came, "delivered": delivered},
            DemoGlance(
                "SIGKILL to a consumer, then to the leader",
                (
                    (first.lines, "messages"),
                    (first.lines - first.acknowledged, "lost"),
                    (first.duplicates, "delivered twice"),
                ),
            ),
        )


NAMES = {"real": "Real run", "postgres": "Real run on PostgreSQL"}


def describe_part(part: str, came: GroupRun, say: Say) -> GroupRun:
    """Say what a real part came to."""
    say(
        f"{part}: {came.acknowledged} of {came.lines} acknowledged, {came.duplicates} delivered twice, "
        f"{came.seconds:.0f} s"
    )
    return came


def run_on_postgres(out: Path, path: Path | None, say: Say, advance: Advance) -> GroupRun:
    """The real part on a PostgreSQL server of its own, which is gone afterwards."""
    from statemachines.demo.shared_subscriptions import real
    from statemachines.testing.postgres import PostgresServer

    with PostgresServer() as server:
        say(f"postgres: a private server on port {server.port}")
        return real.run(out, path or SHORT_INPUT, say, advance, store=server.database("demo"))


def too_tame(outcome: RunOutcome) -> str:
    """What a simulated run lacks ("": nothing)."""
    faults = sum(outcome.faults.values())
    if outcome.tally["delivered"] < DELIVERIES or faults < FAULTS or len(outcome.faults) < KINDS:
        return f"{outcome.tally['delivered']} deliveries, faults {outcome.faults}"
    return ""


def real_lines(part: str, came: GroupRun) -> list[DemoVerdict]:
    """The verdicts of the consumers' own files."""
    whole = came.acknowledged == came.lines
    figure, twice = f"{came.acknowledged:,} of {came.lines:,}", f"{came.duplicates:,} twice"
    return [
        DemoVerdict(part, "every line acknowledged (own files)", whole, figure),
        DemoVerdict(part, "twice only after a kill or a pause (own files)", not came.wrong, twice),
    ]
