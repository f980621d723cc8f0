"""The command `gapless`: what it prints, where, and its exit codes.

What commands print of files and logs that others wrote: no control character reaches a terminal raw.
"""

import errno
import os
import re
import subprocess
import sys
import tomllib
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import msgspec
import pytest
import typer

from statemachines import __version__, catalogue, cli, registry, show
from statemachines.commands import analysis
from statemachines.commands.command_list import COMMANDS
from statemachines.commands.lazy import load_own
from statemachines.kernel import ConfigurationError, InvariantViolated, name_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def gapless(capsys):
    def run(*arguments):
        code = cli.run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_version(gapless):
    assert gapless("--version") == (0, f"gapless {__version__}\n", "")


def test_help_names_the_commands_and_the_exit_codes(gapless):
    code, out, _ = gapless("--help")
    assert code == 0
    for word in ("show", "bench", "0 held, 1 violated"):
        assert word in out


HELP_MODULES = 275
"""Importing is what a short command spends its time on: 150 ms of processor time, which no test can count."""


def test_the_help_imports_little_and_no_command():
    program = "import sys; from statemachines import cli; cli.run(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = done.stderr.split()
    commands = {f"statemachines.commands.{name}" for name in ("command_list", "exits", "lazy")}
    assert {name for name in found if name.startswith("statemachines.commands.")} == commands
    assert not {"asyncio", "ssl", "rich", "statemachines.drivers.runtime", "typer.rich_utils"} & set(found)
    assert len(found) < HELP_MODULES


def test_the_help_says_what_each_command_does(gapless):
    listed = gapless("--help")[1].partition("\nOperate:\n")[2]
    assert "A command of" not in listed
    assert " sessions   Operate a store of persistent sessions.\n" in listed
    assert " show-loss  Show what was lost: repeated, not subscribed, lost, and lost of\n" in listed


def test_the_help_of_all_nodes_says_what_each_role_does_and_makes_no_command_of_it(gapless, monkeypatch):
    assert "Keep samples of every publisher under a key" in gapless("node", "--help")[1]  # what it imports, it has
    made = []
    get_command = typer.main.get_command
    monkeypatch.setattr(typer.main, "get_command", lambda app: made.append(app) or get_command(app))
    listed = " ".join(gapless("node", "--help")[1].partition("Commands:")[2].split())
    assert "cache Keep samples of every publisher under a key expression, and answer subscribers" in listed
    assert "..." not in listed
    assert len(made) == 1  # the whole command line


LIBRARIES = {"pydantic", "zenoh", "sqlalchemy", "simpy", "numba", "numpy", "pyarrow", "pyspark", "hypothesis", "rich"}
ROLES = ("leader", "mqtt", "sessions", "cache", "multicast-subscriber")


def test_no_help_imports_a_library_or_what_runs():
    """`python tools/help_cost.py` prints what each takes."""
    commands = [*([name] for name in COMMANDS), ["sessions", "list"], ["group", "list"], ["show-loss"]]
    commands += [["node", role] for role in ROLES]
    program = (
        f"import sys; from statemachines import cli; ended = [cli.run([*one, '--help']) for one in {commands}];"
        "print(*sys.modules, file=sys.stderr); sys.exit(any(ended))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = set(done.stderr.split())
    assert not found & (LIBRARIES | {"statemachines.drivers.runtime", "statemachines.trace.log"})
    assert not {one for one in found if one.startswith(("statemachines_sim", "statemachines_spec."))}


def test_no_help_of_a_command_or_of_all_nodes_imports_a_network():
    commands = [*([name] for name in COMMANDS), ["sessions"], ["group"]]
    program = (
        f"import sys; from statemachines import cli; ended = [cli.run([*one, '--help']) for one in {commands}];"
        "print(*sys.modules, file=sys.stderr); sys.exit(any(ended))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"asyncio", "ssl"} & set(done.stderr.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_says_of_a_command_what_its_own_help_says_first(gapless, name):
    command = load_own(name)
    assert " ".join(command.help.split("\n\n")[0].split()) == COMMANDS[name].summary
    assert f"  {name} " in gapless("--help")[1]


@pytest.mark.parametrize("arguments", [(), ("simulate",), ("node", "leader"), ("group",)])
def test_h_is_help(gapless, arguments):
    code, out, err = gapless(*arguments, "-h")
    assert (code, err, out) == (0, "", gapless(*arguments, "--help")[1])
    assert "Usage" in out


@pytest.mark.parametrize(("words", "completed"), [("gapless an", "analyze"), ("gapless simulate --see", "--seed")])
def test_the_shell_completes(words, completed):
    """`gapless --install-completion` puts what asks so into the shell's file."""
    place = str(len(words.split()) - 1)
    given = {"_GAPLESS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": place}
    done = subprocess.run(
        [sys.executable, "-m", "statemachines"], env=os.environ | given, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [completed], done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("simulate", "storm", "--seed", "-1"), "'--seed': -1 is not in the range 0<=x"),
        (("simulate", "storm", "--seed", "one"), "'--seed'"),
        (("campaign", "storm", "--seeds", "0"), "'--seeds'"),
        (("simulate",), "Missing argument 'SCENARIO'"),
        (("check", "sequence_windows", "--engine"), "Option '--engine' requires an argument"),
    ],
)
def test_a_wrong_option_is_one_line(gapless, arguments, said):
    code, out, err = gapless(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert said in err
    assert err.endswith("-h`\n")


def test_a_password_that_is_not_typed_is_one_line(gapless, monkeypatch, capsys):
    def end(prompt):
        raise EOFError

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("getpass.getpass", end)
    assert cli.run(["password", "alice"]) == 2
    said = capsys.readouterr().err.strip()
    assert said == "error: the input ended before what was asked for was there; nothing was done"


def test_show_lists_the_machines(gapless):
    code, out, err = gapless("show")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    for name in registry.names():
        assert [line for line in lines if line.startswith(f"{name}: ")], name
        assert f"  {', '.join(registry.protocol(name).machines)}" in lines
    assert all(line == line.rstrip() for line in lines)


def test_show_of_a_protocol_sums_its_machines_up(gapless):
    code, out, err = gapless("show", "shared_subscriptions")
    assert (code, err) == (0, "")
    for name in registry.protocol("shared_subscriptions").machines:
        assert [line for line in out.splitlines() if line.split()[:1] == [name]], name


def test_show_lists_the_machines_as_json(gapless):
    code, out, _ = gapless("show", "--json")
    listed = msgspec.json.decode(out)
    assert code == 0
    assert [f"{one['protocol']}/{one['name']}" for one in listed] == list(catalogue.names())
    code, out, _ = gapless("show", "shared_subscriptions", "--json")
    assert code == 0
    assert msgspec.json.decode(out)[0] == {
        "name": "borrower",
        "protocol": "shared_subscriptions",
        "summary": "one shared subscription of one session",
        "states": ["connecting", "connected", "unsubscribing", "destroyed"],
        "rows": len(catalogue.machine("borrower").lines),
    }


@pytest.mark.parametrize("name", catalogue.names())
def test_show_prints_a_line_for_each_row_and_the_text_of_each_clause(gapless, name):
    code, out, err = gapless("show", name)
    assert (code, err) == (0, "")
    fsm = catalogue.machine(name)
    clauses = catalogue.clauses(catalogue.protocol_of(name).name)
    table = {line.split()[0]: line for line in out.splitlines() if line.split()[:1] and line.split()[0].isdigit()}
    assert len(table) == len(fsm.lines)
    joined = " ".join(out.split())
    for line in fsm.lines:
        row = table[str(line.number)]
        assert row.split()[1] == name_of(line.event)
        assert row.endswith(line.clause)
        assert " ".join(clauses[line.clause].text.split()) in joined
    for timer in fsm.timers:
        assert timer.name in joined


def test_show_names_the_machines_that_it_delegates_to(gapless):
    assert "child machines: member, assignment\n" in gapless("show", "leader")[1]
    assert "child machines" not in gapless("show", "stream")[1]
    assert msgspec.json.decode(gapless("show", "leader", "--json")[1])["children"] == ["member", "assignment"]


def test_a_table_is_as_wide_as_the_terminal(monkeypatch):
    class Terminal(StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("TERM", "xterm")
    narrow, piped = Terminal(), StringIO()
    show.write(show.render_description("stream"), narrow)
    show.write(show.render_description("stream"), piped)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", narrow.getvalue())
    assert max(len(line) for line in shown.splitlines()) <= 70
    assert max(len(line) for line in piped.getvalue().splitlines()) > 70


def test_show_as_json_has_lines_and_clauses(gapless):
    code, out, _ = gapless("show", "stream", "--json")
    shown = msgspec.json.decode(out)
    assert code == 0
    assert shown["initial"] == "absent"
    assert shown["lines"][0] == {
        "number": 0,
        "event": "grant",
        "sources": ["absent"],
        "dest": "granted",
        "kind": "row",
        "guard": "is_higher",
        "action": "install",
        "clause": "SS-30",
    }
    assert [clause["id"] for clause in shown["clauses"]][:2] == ["SS-30", "SS-31"]


@pytest.mark.parametrize(
    ("how", "begin"), [("mermaid", "stateDiagram-v2"), ("graphviz", 'digraph "stream" {'), ("markdown", "| # | event")]
)
def test_show_draws(gapless, how, begin):
    code, out, err = gapless("show", "stream", f"--{how}")
    assert (code, err) == (0, "")
    assert out.startswith(begin)
    assert out.endswith("\n")
    assert not out.endswith("\n\n")


def test_an_unknown_machine_is_wrong_usage(gapless):
    code, out, err = gapless("show", "borower")
    assert (code, out) == (2, "")
    assert err.startswith("error: machine = 'borower': unknown; did you mean 'borrower'?")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [("show", "stream", "--json", "--mermaid"), ("show", "--mermaid"), ("show", "--colour"), ("dance",)]
)
def test_wrong_usage_says_so_on_stderr(gapless, arguments):
    code, out, err = gapless(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.fullmatch(r"error: .*; see `gapless( show)? -h`\n|error: .*; `gapless show` lists them.*\n", err)


def raising(monkeypatch, error):
    monkeypatch.setattr("statemachines.show.render_listing", Mock(side_effect=error))


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ConfigurationError("validity", 3, "must be more"), 2, "error: validity = 3: must be more\n"),
        (FileNotFoundError(2, "No such file", "x.toml"), 2, "error: x.toml: No such file\n"),
        (
            OSError(errno.EROFS, "Read-only file system", "out/t"),
            2,
            "error: out/t: Read-only file system; name a place that this user may write to\n",
        ),
        (OSError(errno.ENOSPC, "No space", "t"), 2, "error: t: No space; make room, and run it again\n"),
        (ConnectionError("nobody answers"), 2, "error: nobody answers\n"),
        (InvariantViolated("m", "kept", None), 1, "error: m: invariant kept does not hold\n"),
        (
            ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql"),
            2,
            "error: this command needs the extra 'reports': pip install 'gapless[reports]'\n",
        ),
    ],
)
def test_errors_are_one_line_and_an_exit_code(gapless, monkeypatch, error, code, text):
    raising(monkeypatch, error)
    assert gapless("show") == (code, "", text)


@pytest.mark.parametrize("error", [ZeroDivisionError("ours"), ImportError("gone", name="statemachines.gone")])
def test_our_own_mistakes_decide_nothing(gapless, monkeypatch, error):
    raising(monkeypatch, error)
    code, out, err = gapless("show")
    assert (code, out) == (5, "")
    assert "Traceback" in err
    assert err.endswith("error: this is a mistake of gapless itself; nothing has been decided\n")


def test_every_extra_that_a_command_may_miss_exists():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = {*cli.EXTRAS, *(one.extra for one in COMMANDS.values())}
    assert named - {""} <= set(settings["project"]["optional-dependencies"])


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        (["judge", "log"], "numpy", "reports"),
        (["analyze", "out"], "pyarrow", "reports"),
        (["campaign", "storm"], "pyarrow", "sim"),
        (["check", "list"], "numpy", "spec"),
        (["show", "stream", "--html", "x.html"], "markupsafe", "reports"),
        (["bench"], "duckdb", "bench"),
    ],
)
def test_a_package_of_several_extras_is_of_that_of_the_command(gapless, monkeypatch, words, package, extra):
    error = ModuleNotFoundError(f"No module named {package!r}", name=package)
    monkeypatch.setattr(cli, "app", Mock(side_effect=error))
    assert gapless(*words) == (
        2,
        "",
        f"error: this command needs the extra '{extra}': pip install 'gapless[{extra}]'\n",
    )


def test_a_command_loads_no_extra_before_it_runs():
    """Listing machines must work where nothing optional is installed."""
    packages = {one for some in cli.EXTRAS.values() for one in some}
    program = (
        "import sys; from statemachines import cli; code = cli.run(['show']); "
        f"print(sorted({packages!r} & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


EVIL = "a\x1b[2J\x07\u202e\x9b"


def is_plain(text):
    return all(one.isprintable() for line in text.splitlines() for one in line)


def test_an_error_is_plain_and_keeps_its_lines(capsys):
    assert cli._fail(f"{EVIL}\nsecond", cli.Exit.USAGE) == cli.Exit.USAGE
    said = capsys.readouterr().err
    assert is_plain(said)
    assert len(said.splitlines()) == 2


@pytest.mark.parametrize(("unjudged", "absent"), [({EVIL: 3}, ()), ({}, (f"who published {EVIL}",))])
def test_what_an_analysis_prints_is_plain(capsys, unjudged, absent):
    check = SimpleNamespace(
        name="rows", level="rows", checked=1, wrong=1, waived=0, verdict="violated", claim="all are"
    )
    unheard = SimpleNamespace(**{**vars(check), "verdict": f"not judged: no log of {EVIL}"})
    found = SimpleNamespace(
        is_held=True,
        runs=1,
        rows=1,
        torn=0,
        checks=[check, unheard],
        unjudged_steps=unjudged,
        absent=absent,
        tables={"findings": [{"run": 0, "seq": 1, "promised": True, "detail": f"{EVIL} came twice"}]},
    )
    analysis._print({"x": found}, None, None)
    with pytest.raises(typer.Exit):
        analysis._exit([found])
    said = capsys.readouterr()
    assert "came twice" in said.out
    assert is_plain(said.out)
    assert is_plain(said.err)
