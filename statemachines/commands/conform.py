"""`gapless conform` and `gapless schema`: an implementation in any language, tested against a declared machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from statemachines import catalogue, registry
from statemachines.commands.exits import Exit, end_if
from statemachines.drivers.options import DiallingCa, SecretFile, TlsCert, TlsKey, read_credentials
from statemachines.interrupts import begin_work
from statemachines.kernel import ConfigurationError
from statemachines.plain_text import plain_json

OUT = Path("out/conform")


def conform(
    role: Annotated[
        str, typer.Argument(metavar="ROLE", help="A machine: its name, protocol/name, or module:ATTRIBUTE.")
    ],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND...", help="After --: what starts the implementation.")
    ] = None,
    runs: Annotated[int, typer.Option(min=0, help="Runs of drawn inputs after the tour.")] = 200,
    seed: Annotated[int, typer.Option(help="What draws them.")] = 0,
    no_tour: Annotated[bool, typer.Option("--no-tour", help="Leave the tour out.")] = False,
    script: Annotated[Path | None, typer.Option(metavar="FILE", help="Play these inputs alone.")] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Where the inputs of a failing run go.")] = None,
    patience: Annotated[float, typer.Option(min=0.1, help="Seconds that an answer is waited for.")] = 10.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Test over the wire: the implementation connects here (port 0: any)."),
    ] = None,
    connect: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Test over the wire: the implementation listens here (port 0: any)."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, max=86_400, help="Over the wire: how long a run takes.")] = 20.0,
    tolerance: Annotated[
        float, typer.Option(min=0.01, max=3_600, help="Over the wire: silence counts after so many seconds.")
    ] = 2.0,
    faults: Annotated[
        float, typer.Option(min=0.0, max=0.25, help="Over the wire: this share of messages is lost, repeated, delayed.")
    ] = 0.1,
    shrink: Annotated[
        float, typer.Option(min=0.0, max=86_400, help="Over the wire: a failing run is shortened for so many seconds.")
    ] = 20.0,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Over the wire: TOML with the times, in place of the kit's own.")
    ] = None,
    store: Annotated[str, typer.Option(help="Over the wire: the identity of the store that the kit names.")] = "",
    secret_file: SecretFile = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: DiallingCa = None,
) -> None:
    """Test an implementation in any language: JSON lines on its standard input and output, or over the wire.

    A tour takes every row of the table that can be taken, and looks where each has led; then come drawn inputs. The
    page "Test your implementation" says what an implementation is told, and what it answers.

    Exit code 0: everything that came is allowed. 1: something is not; the shortest run that shows it is printed and
    saved. 3: it could not be judged, such as an implementation that does not answer in time.
    """
    address = listen or connect
    if not command and address is None:
        rule = "is missing; put -- and what starts the implementation behind the role, or test over the wire: --listen "
        raise ConfigurationError("COMMAND", "", f"{rule}or --connect")
    from statemachines.testing.conformance import report
    from statemachines.testing.conformance.campaign import Campaign, ConformanceOutcome
    from statemachines.testing.conformance.child_process import ChildProcess
    from statemachines.testing.conformance.role import role_of

    found = role_of(role)
    argv = tuple(command or ())
    if address is not None:
        from statemachines.commands import conform_wire
        from statemachines.drivers.tcp import parse_address
        from statemachines.testing.conformance.wire_verdict import WireOptions

        conform_wire.check_side(found, listen, connect)
        options = WireOptions(
            seconds, seed, tolerance, faults=faults, configuration=conform_wire.read_times(config, found), store=store,
            credentials=read_credentials(secret_file, tls_cert, tls_key, tls_ca), address=parse_address(address),
        )  # fmt: skip
        plan = conform_wire.WirePlan(role, script, save or OUT / f"{found.fsm.name}-wire.json", shrink)
        raise typer.Exit(conform_wire.run(found, options, argv, plan, json=json))
    moves = None if script is None else report.load(script, found)
    begin_work()
    campaign = Campaign(found, lambda: ChildProcess(argv, patience))
    verdict = campaign.judge(runs, seed, tour=not no_tour) if moves is None else campaign.replay(moves)
    print(plain_json(report.json_of(verdict, found)) if json else report.text_of(verdict, found))
    if verdict.outcome is ConformanceOutcome.FAIL:
        path = save or script or OUT / f"{found.fsm.name}.jsonl"
        if path != script:
            report.save(path, verdict.moves)
        if not json:
            print(f"  repeat    {report.repeat_of(role, path, argv)}")
    end_if(
        (verdict.outcome is ConformanceOutcome.FAIL, Exit.VIOLATED),
        (verdict.outcome is ConformanceOutcome.INCONCLUSIVE, Exit.INCONCLUSIVE),
    )


def schema(
    protocol: Annotated[
        str, typer.Argument(metavar="PROTOCOL", help="A protocol, or one machine of it, by name or module:ATTRIBUTE.")
    ],
) -> None:
    """Print the JSON Schema of the lines that `gapless conform` speaks, for the roles of a protocol."""
    from statemachines.testing.conformance.interface import schema as schema_of
    from statemachines.testing.conformance.role import role_of, roles_of

    if protocol in registry.names():
        roles = dict(roles_of(protocol))
        if not roles:
            names = ", ".join(machine.name for machine in catalogue.machines(protocol))
            raise ConfigurationError("protocol", protocol, f"declares no roles; name one of its machines: {names}")
    else:
        one = role_of(protocol)
        roles = {one.fsm.name: one}
    print(plain_json(schema_of({name: one.interface for name, one in roles.items()})))
