"""A protocol from outside the tree gets every verb, and what is wrong with one is an error only of who needs it."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

MADE_UP = Path(__file__).parents[1] / "made_up"
INSTALLED = MADE_UP / "installed"
WIDE = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}


def python(*arguments, places=(MADE_UP, INSTALLED), folder=None):
    """A Python process that finds what is in `places`."""
    environment = {**os.environ, **WIDE, "PYTHONPATH": os.pathsep.join(map(str, places))}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=120)


def gapless(*arguments, **options):
    return python("-m", "statemachines", *arguments, **options)


def said(done):
    """What went to stderr, in one line of words."""
    return " ".join(done.stderr.split())


class Folder:
    """A folder on the path, in which distributions are installed."""

    def __init__(self, path):
        self.path = path

    def module(self, name, source):
        path = self.path / f"{name}.py"
        path.write_text(textwrap.dedent(source))

    def install(self, distribution, *entries):
        """A distribution with entry points `name = module:ATTRIBUTE`."""
        info = self.path / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("\n".join(["[gapless.protocols]", *entries, ""]))

    def protocol(self, name, **values):
        """A protocol in a module of its name, installed."""
        given = "".join(f", {key}={value!r}" for key, value in {"prefix": "XX", "machines": {}, **values}.items())
        self.module(name, f"from statemachines.kernel import Protocol\nPROTOCOL = Protocol(name={name!r}{given})\n")
        self.install(f"dist-{name}".replace("_", "-"), f"{name} = {name}:PROTOCOL")

    def gapless(self, *arguments):
        return gapless(*arguments, places=(self.path, MADE_UP, INSTALLED), folder=self.path)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


# -- everything is there ----------------------------------------------------------------------------------------------


def test_it_is_shown_with_ours():
    listed = gapless("show")
    assert listed.returncode == 0
    assert "made_up: numbers that are given out once" in listed.stdout
    assert "dispenser, taker" in listed.stdout
    assert "shared_subscriptions:" in listed.stdout


@pytest.mark.parametrize("name", ["taker", "made_up/taker", "made_up.machines:TAKER"])
def test_its_machines_are_shown_by_any_of_their_names(name):
    shown = gapless("show", name)
    assert shown.returncode == 0, shown.stderr
    assert "made_up/taker" in shown.stdout
    assert "MU-04" in shown.stdout


@pytest.mark.long
def test_its_roles_are_run_beside_ours():
    listed = gapless("node", "--help")
    assert listed.returncode == 0, listed.stderr
    assert [role for role in ("consumer", "dispenser", "leader", "publisher", "taker") if role in listed.stdout] == [
        "consumer",
        "dispenser",
        "leader",
        "publisher",
        "taker",
    ]
    role = gapless("node", "made_up/taker", "--help")
    assert role.returncode == 0, role.stderr
    for option in ("--goal", "--dispenser", "--name", "--state", "--trace", "--secret-file", "--tls-ca"):
        assert option in role.stdout


@pytest.mark.long
def test_its_own_verbs_stand_beside_ours(tmp_path):
    assert re.search(r"tickets +Look at the tickets\.", gapless("--help").stdout)
    assert "Look at the tickets." in gapless("tickets", "--help").stdout
    counted = gapless("tickets", "count", tmp_path / "none.json")
    assert (counted.returncode, counted.stdout) == (0, "0\n")


@pytest.mark.long
@pytest.mark.parametrize("where", [(), ("--runtime", "--trace", "logs")])
def test_d_240_its_counterexample_is_followed_in_the_simulator_and_on_the_runtime(tmp_path, where):
    broken = gapless("check", "made_up", "--variant", "forgetful", "--script", "twice.json", folder=tmp_path)
    assert broken.returncode == 1, broken.stderr
    replayed = gapless("replay", "twice.json", *where, folder=tmp_path)
    assert (replayed.returncode, replayed.stdout.splitlines()[-1]) == (
        1,
        "VIOLATED once: who asks once gets one number (journal: 2)",
    )
    settled = gapless("replay", "twice.json", *where[:1], "--variant", "settled", folder=tmp_path)
    assert (settled.returncode, settled.stdout.splitlines()[-1]) == (
        0,
        "once does not break here, nor does anything else",
    )


@pytest.mark.long
def test_without_it_nothing_of_it_is_there():
    assert "made_up" not in gapless("show", places=()).stdout
    refused = gapless("node", "taker", places=())
    assert refused.returncode == 2
    ours = "zenoh-router, cache, zenoh-publisher, zenoh-subscriber, mqtt, sessions, session-collector"
    there = f"{ours}, multicast-publisher, multicast-subscriber, leader, consumer, publisher"
    assert f"role = 'taker': unknown; there are: {there}; or protocol/role" in said(refused)


# -- nothing is imported that is not needed ----------------------------------------------------------------------------

IMPORTED = """
import sys
{what}
kept = ("made_up", "statemachines.shared_subscriptions", "statemachines.missed_samples",
        "statemachines.cursor_recovery", "statemachines.drivers.shared_subscriptions")
print(*sorted(name for name in sys.modules if name.startswith(kept)), sep="\\n")
"""

RUN = """
from statemachines.cli import run
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()):
    assert run({arguments!r}) == 0
"""

REGISTRATIONS = {
    "made_up",
    "statemachines.cursor_recovery",
    "statemachines.missed_samples",
    "statemachines.shared_subscriptions",
}
"""Small values that import nothing."""

COMMAND_MODULES = {
    "made_up.verbs",
    "statemachines.drivers.shared_subscriptions",
    "statemachines.drivers.shared_subscriptions.group_command",
    "statemachines.drivers.shared_subscriptions.node_commands",
}


def imported(what):
    done = python("-c", IMPORTED.format(what=what))
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.long
def test_hypothesis_imports_no_protocol():
    assert imported("import hypothesis") <= REGISTRATIONS


def test_the_help_imports_no_machine():
    """The modules of commands say what these do; they import no machine before they are run."""
    assert imported(RUN.format(arguments=["--help"])) <= REGISTRATIONS | COMMAND_MODULES


def test_listing_the_machines_imports_none():
    assert imported(RUN.format(arguments=["show"])) <= REGISTRATIONS


def test_the_help_of_a_command_of_ours_imports_no_protocol():
    assert imported(RUN.format(arguments=["simulate", "--help"])) == set()


ROLES = """
import sys
from statemachines.drivers import protocol
protocol.names()
late = {"zenoh", "statemachines.drivers.missed_samples.cache", "statemachines.sequence_windows.windows"}
print(*sorted(late & set(sys.modules)))
"""


def test_listing_the_roles_imports_neither_zenoh_nor_a_machine():
    """Every process of `gapless node` does."""
    done = python("-c", ROLES)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


# -- what is wrong is an error of who needs it -------------------------------------------------------------------------


@pytest.mark.long
def test_a_broken_entry_point_is_an_error_of_that_protocol_only(folder):
    folder.install("lost", "lost = nowhere:PROTOCOL")
    folder.module("torn", "raise RuntimeError('half written')\n")
    folder.install("torn", "torn = torn:PROTOCOL")
    listed = folder.gapless("show")
    assert listed.returncode == 0, listed.stderr
    assert "lost cannot be loaded" in listed.stdout
    assert "torn cannot be loaded" in listed.stdout
    assert "RuntimeError: half written" in listed.stdout
    for fine in (["--help"], ["show", "taker"], ["node", "--help"], ["node", "taker", "--help"]):
        done = folder.gapless(*fine)
        assert done.returncode == 0, (fine, done.stderr)
    refused = folder.gapless("show", "lost/machine")
    assert refused.returncode == 2
    assert "protocol lost does not load" in said(refused)


def test_two_registrations_with_different_values_are_named(folder):
    for name in ("one", "two"):
        values = f"Protocol(name='twice', prefix='TW', machines={{}}, about={name!r})"
        folder.module(name, f"from statemachines.kernel import Protocol\nPROTOCOL = {values}\n")
        folder.install(f"dist-{name}", f"twice = {name}:PROTOCOL")
    listed = folder.gapless("show")
    assert listed.returncode == 0
    assert "is registered with different values, by dist-one (one:PROTOCOL) and dist-two (two:PROTOCOL)" in " ".join(
        listed.stdout.split()
    )


@pytest.mark.long
def test_a_short_name_of_several_machines_is_refused_with_both(folder):
    folder.protocol("other", machines={"taker": "made_up.machines:TAKER"})
    refused = folder.gapless("show", "taker")
    assert refused.returncode == 2
    assert "several protocols have one: say made_up/taker or other/taker" in said(refused)
    assert folder.gapless("show", "made_up/taker").returncode == 0
    wrong = folder.gapless("show", "other/taker")
    assert wrong.returncode == 2
    assert "a machine calls itself 'made_up/taker'" in said(wrong)


@pytest.mark.long
def test_a_short_name_of_several_roles_is_refused_with_both(folder):
    folder.protocol("other", areas={"drivers": "made_up.nodes:DRIVERS"})
    refused = folder.gapless("node", "taker", "--goal", "3")
    assert refused.returncode == 2
    assert "role = 'taker': several protocols have one: say made_up/taker or other/taker" in said(refused)
    listed = folder.gapless("node", "--help").stdout
    assert "made_up/taker" in listed
    assert "other/taker" in listed
    assert folder.gapless("node", "other/taker", "--help").returncode == 0


@pytest.mark.long
def test_drivers_that_do_not_import_are_an_error_of_their_roles_only(folder):
    folder.module("halved_nodes", "DRIVERS = 1 / 0\n")
    folder.protocol("halved", areas={"drivers": "halved_nodes:DRIVERS"})
    folder.protocol("wrong", areas={"drivers": "made_up:PROTOCOL"})
    assert folder.gapless("node", "taker", "--help").returncode == 0
    assert folder.gapless("node", "--help").returncode == 0
    for name, why in (("halved", "ZeroDivisionError: division by zero"), ("wrong", "must be a DriverProtocol")):
        refused = folder.gapless("node", f"{name}/role")
        assert refused.returncode == 2, name
        assert why in said(refused)
    lost = folder.gapless("node", "no-such-role")
    assert lost.returncode == 2
    assert "halved does not load" in said(lost)


def test_a_protocol_without_drivers_says_who_has_some(folder):
    folder.protocol("bare")
    refused = folder.gapless("node", "bare/role")
    assert refused.returncode == 2
    assert "has no part for 'drivers'" in said(refused)
    assert (
        "made_up, missed_samples, mqtt_connections, persistent_sessions, sequence_windows, shared_subscriptions"
        in said(refused)
    )


@pytest.mark.long
def test_a_verb_of_two_protocols_is_an_error_of_that_verb_only(folder):
    folder.protocol("other", commands={"tickets": "other_verbs:app", "lots": "other_verbs:app"})
    folder.module(
        "other_verbs", "import typer\napp = typer.Typer(help='Other.')\n@app.command()\ndef x(): print('x')\n"
    )
    refused = folder.gapless("tickets", "count", "--any", "thing")
    assert refused.returncode == 2
    assert "command = 'tickets': is of several protocols: made_up, other" in said(refused)
    assert folder.gapless("--help").returncode == 0
    assert folder.gapless("show", "taker").returncode == 0
    fine = folder.gapless("lots")
    assert (fine.returncode, fine.stdout) == (0, "x\n"), fine.stderr


def test_a_verb_that_does_not_import_is_an_error_of_that_verb_only(folder):
    folder.protocol("other", commands={"lots": "nowhere:app"})
    listed = folder.gapless("--help")
    assert listed.returncode == 0
    assert re.search(r"lots +cannot be loaded: .*there is no module", " ".join(listed.stdout.split()))
    refused = folder.gapless("lots", "more")
    assert refused.returncode == 2
    assert "there is no module 'nowhere'" in said(refused)


def test_a_verb_of_our_own_stays_ours(folder):
    folder.protocol("other", commands={"show": "nowhere:app"})
    assert "taker" in folder.gapless("show").stdout
