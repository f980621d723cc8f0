"""The command `gapless`.

Exit codes: 0 held, 1 violated, 2 usage, 3 inconclusive (also when we ourselves fail).  A command loads what it needs
when it runs, so that one without extras works without them; `--json` goes to stdout, progress and errors to stderr.
"""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Final

import typer

from statemachines import __version__
from statemachines.commands import (
    adopt,
    analysis,
    campaign,
    check,
    conform,
    damage,
    demo,
    environment,
    export,
    itf,
    judge,
    mutate,
    node,
    password,
    simulation,
)
from statemachines.commands.exits import Exit
from statemachines.commands.lazy import ProtocolCommands
from statemachines.drivers.plain_text import plain_lines
from statemachines.interrupts import INTERRUPTED, begin_work, end_on_sigterm, leave_threads
from statemachines.kernel import ConfigurationError, GaplessError, InvariantViolated, Superseded

EXTRAS: Final = {
    "simpy": "sim",
    "pyarrow": "sim",
    "networkx": "spec",
    "numba": "spec",
    "hypothesis": "testing",
    "pytest": "testing",
    "sqlalchemy": "sql",
    "psycopg": "postgres",
    "zenoh": "zenoh",
    "atomicshm": "shm",
    "pyspark": "reports",
    "pandas": "reports",
    "jinja2": "reports",
    "grpc": "connect",
    "polars": "bench",
    "duckdb": "bench",
    "redis": "bench",
}
"""Package that is imported -> the extra of this distribution that brings it."""

app = typer.Typer(
    name="gapless",
    cls=ProtocolCommands,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="State machines of protocols that deliver without gaps: look at them, run them, check them, judge traces.",
    epilog="Exit codes: 0 held, 1 violated, 2 wrong usage, 3 inconclusive.",
)

JSON = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]


def main() -> None:
    """The command, in a process of its own.  A node ends in a way of its own, and has nothing to clean up until it
    lives."""
    print_anything()
    if sys.argv[1:2] != ["node"]:
        end_on_sigterm()
    code = run()
    if code == INTERRUPTED:
        leave_threads(code)
    sys.exit(code)


def print_anything() -> None:
    """What a locale has no letters for (`LC_ALL=C`) is printed escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command (`sys.argv` without arguments); its exit code."""
    try:
        app(args=arguments, prog_name="gapless")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else Exit.HELD
    except ImportError as error:
        return _missing(error)
    except InvariantViolated as error:
        return _fail(str(error), Exit.VIOLATED)
    except Superseded as error:
        return _fail(str(error), Exit.SUPERSEDED)
    except GaplessError as error:
        return _fail(str(error), Exit.USAGE)
    except OSError as error:
        return _fail(_of_system(error), Exit.USAGE)
    except Exception:
        traceback.print_exc()
        return _fail("this is a mistake of gapless itself; nothing has been decided", Exit.INCONCLUSIVE)
    return Exit.HELD


MENDS: Final = {
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "name a place that this user may write to"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "allow more open files (ulimit -n), and run it again"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room, and run it again"),
}
"""What to do where the operating system does not let us."""


def _of_system(error: OSError) -> str:
    """What the operating system says, with the file that it is about first."""
    mend = MENDS.get(error.errno or 0)
    where = str(error) if error.filename is None or error.strerror is None else f"{error.filename}: {error.strerror}"
    return f"{where}{f'; {mend}' if mend else ''}"


def _fail(text: str, code: Exit) -> int:
    print(f"error: {plain_lines(text)}", file=sys.stderr)
    return code


def _missing(error: ImportError) -> int:
    """A package of an extra is not installed; any other failed import is a mistake of ours."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    if extra is None:
        traceback.print_exception(error)
        return _fail("this is a mistake of gapless itself; nothing has been decided", Exit.INCONCLUSIVE)
    return _fail(f"this command needs the extra '{extra}': pip install 'gapless[{extra}]'", Exit.USAGE)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"gapless {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def show(
    machine: Annotated[
        str,
        typer.Argument(
            metavar="MACHINE",
            help="A machine: its name, protocol/name, or module:ATTRIBUTE; a process; or a protocol; without one, all.",
        ),
    ] = "",
    mermaid: Annotated[bool, typer.Option("--mermaid", help="A Mermaid state diagram.")] = False,
    graphviz: Annotated[bool, typer.Option("--graphviz", help="A Graphviz digraph.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="The table in Markdown.")] = False,
    graphml: Annotated[bool, typer.Option("--graphml", help="The table as a graph in GraphML.")] = False,
    json: JSON = False,
) -> None:
    """Show a machine: its table, its timers, and the clauses that its rows carry out."""
    from statemachines import catalogue, diagrams, registry
    from statemachines import show as shown

    drawn = (
        (mermaid, diagrams.mermaid),
        (graphviz, diagrams.graphviz),
        (markdown, diagrams.markdown),
        (graphml, diagrams.graphml),
    )
    if mermaid + graphviz + markdown + graphml + json > 1:
        raise typer.BadParameter("choose one of --mermaid, --graphviz, --markdown, --graphml, --json")
    drawings = [draw for wanted, draw in drawn if wanted]
    if drawings and not machine:
        raise typer.BadParameter("a diagram needs a MACHINE; `gapless show` lists them")
    process = catalogue.find_process(machine) if machine and ":" not in machine else None
    if process is not None:
        if drawings and not mermaid:
            raise typer.BadParameter("a process has a Mermaid diagram, or JSON; its machine is shown with it")
        if mermaid:
            print(diagrams.mermaid_process(process), end="")
        elif json:
            _print_json(shown.describe_process_json(process))
        else:
            shown.write(shown.describe_process(process))
    elif drawings:
        print(drawings[0](catalogue.machine(machine)), end="")
    elif machine in registry.names():
        _print_json(shown.overview_json(machine)) if json else shown.write(shown.overview(machine))
    elif json:
        _print_json(shown.description_json(machine) if machine else shown.listing_json())
    else:
        shown.write(shown.description(machine) if machine else shown.listing())


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Rows; default all.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the rows; measure nothing.")] = False,
    save: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Also write each result there as it is measured, as JSON.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the rows in --save that were measured on this commit.")
    ] = False,
    json: JSON = False,
) -> None:
    """Measure against baselines, in turns; exit code 1 if a target is missed.

    One row, one baseline: targets are ratios, since absolute times are those of this machine.  Benchmarks come with a
    checkout, and not with the package that pip installs.

    Each row is printed when it ends, and the table of all rows at the end.  Exit code 3 if interrupted: the table has
    what was measured by then, and `--save PATH --resume` measures the other rows.
    """
    try:
        import statemachines_bench as benchmarks
    except ModuleNotFoundError as error:
        if error.name != "statemachines_bench":
            raise
        rule = "come with a checkout alone; run `make bench` in one"
        raise ConfigurationError("benchmarks", "not installed", rule) from error
    from statemachines import show as shown

    chosen = benchmarks.choose(names or [])
    begin_work()
    if listed:
        _print_json(benchmarks.list_json(chosen)) if json else shown.write(benchmarks.list_rows(chosen))
        return
    if resume and save is None:
        raise ConfigurationError("--resume", True, "needs the file of the results to keep: give --save")
    file = None if save is None else benchmarks.SavedResults(save, benchmarks.find_commit(Path(benchmarks.__path__[0])))
    found = file.read(chosen) if file is not None and resume else {}
    with suppress(KeyboardInterrupt):
        for result in benchmarks.measure_all((row for row in chosen if row.name not in found), progress=_progress):
            found[result.row.name] = result
            if not json:
                print(benchmarks.summarize_result(result), flush=True)
            if file is not None:
                file.write(found.values())
    results = [found[row.name] for row in chosen if row.name in found]
    if json:
        _print_json(benchmarks.results_json(results))
    else:
        shown.write(benchmarks.render_results(results))
    if not all(result.holds for result in results):
        raise typer.Exit(Exit.VIOLATED)
    if len(results) < len(chosen):
        print(f"interrupted after {len(results)} of {len(chosen)} rows", file=sys.stderr)
        raise typer.Exit(Exit.INCONCLUSIVE)


def _print_json(text: bytes) -> None:
    print(text.decode())


def _progress(text: str) -> None:
    """Only where somebody is looking."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(demo.demo)
app.command()(simulation.simulate)
app.command()(simulation.replay)
app.command()(campaign.campaign)
app.command("env-archive")(environment.write_archive)
app.command()(analysis.analyze)
app.command()(damage.damage)
app.command()(export.export)
app.command()(check.check)
app.command()(itf.itf)
app.command()(mutate.mutate)
app.command()(adopt.adopt)
app.command()(judge.judge)
app.command()(conform.conform)
app.command()(conform.schema)
app.command()(password.password)
app.add_typer(node.app, name="node")
