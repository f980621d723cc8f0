"""Bad input to the roles over zenoh: one line that names the thing and what was expected, exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from statemachines import cli

ANYWHERE = ("--listen", "tcp/127.0.0.1:0")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A role keeps the number of its life in the current folder, if it is given no other."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("role", "options", "says"),
    [
        ("cache", ("--key", "//"), "'//'"),
        ("cache", ("--key", "k", "--history", "0"), "history"),
        ("zenoh-subscriber", ("--key", "k//"), "chunks apart by /"),
        ("zenoh-subscriber", ("--key", "**/**"), "no ** behind another"),
        ("zenoh-subscriber", ("--key", "k", "--history", "-1"), "history"),
        ("zenoh-subscriber", ("--key", "k", "--connect", "nonsense"), "<protocol>/<address>"),
        ("zenoh-publisher", ("--key", "k/*"), "one key, without *"),
        ("zenoh-publisher", ("--key", "k", "--input", "nowhere"), "nowhere"),
        ("zenoh-publisher", ("--key", "k", "--input", "."), "a file that can be read"),
        ("zenoh-publisher", ("--key", "k", "--source", "x", *ANYWHERE), "layout='plain'"),
        ("zenoh-publisher", ("--key", "k", "--layout", "plain", "--source", "x/y", *ANYWHERE), "'x/y'"),
        ("zenoh-router", ("--listen", "tcp/127.0.0.1:99999"), "invalid port value"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    role: str, options: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["node", role, *options]) == cli.Exit.USAGE
    said = capsys.readouterr().err
    assert says in " ".join(said.replace("│", " ").split())
    assert said.startswith(("error: ", "Usage: "))
    for never in ("Traceback", ".rs:", "Json5Err"):
        assert never not in said


def test_whoever_imports_it_without_zenoh_is_told_the_extra() -> None:
    without = "import sys; sys.modules['zenoh'] = None"
    program = f"{without}\nfrom statemachines.drivers.missed_samples import ReliablePublisher"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: needs eclipse-zenoh: pip install 'gapless[zenoh]'"
