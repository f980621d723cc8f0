"""Small listings: what pages show in passing runs, too; a fragment with what its page takes for granted."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import strategies as st
from msgspec.structs import replace

from statemachines.shared_subscriptions.borrower import BORROWER, CONNECTING, BorrowerRecord
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.member import ExpiryTimer
from statemachines.shared_subscriptions.message import Grant
from statemachines.testing.process_harness import free_port
from statemachines.testing.strategies import of
from statemachines.testing.struct_values import Pool
from statemachines_spec import Eventually, FsmActor, Network, System
from statemachines_spec.explorer.fsm_actor import RUNNING
from statemachines_spec.explorer.system import Budget, Due

DOCS = Path(__file__).parents[2] / "docs"

SAYS = {
    "mqtt.md": ["clients connect to 127.0.0.1\n", "groups: True\n"],
    "permissions.md": [""],
    "stores.md": [""],
}
"""Page of whole programs -> what each of its programs prints."""

RECORD = BorrowerRecord("b~1", "g", "#", ("leader",), Configuration())


def listings(page):
    """The listings in Python of a page."""
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("page", SAYS)
def test_a_program_on_a_page_runs(page, tmp_path):
    said = [
        subprocess.run([sys.executable, "-c", one], cwd=tmp_path, capture_output=True, text=True, check=True,
                       timeout=120).stdout
        for one in listings(page)
    ]  # fmt: skip
    assert said == SAYS[page]


def test_the_fragment_of_a_timed_system_makes_one():
    given = {
        "HOLDER": BORROWER,
        "record": RECORD,
        "over_ping_at": lambda record, live, dead: replace(record, ping_at_ns=live(record.ping_at_ns)),
        "server": FsmActor("server", BORROWER, replace(RECORD, id="server")),
        "network": Network(2),
    }
    (code,) = listings("timed.md")
    exec(code, given)
    assert isinstance(given["system"], System)
    assert given["clock"] in given["system"].actors


def test_the_fragments_of_an_obligation_and_of_a_budget_say_what_they_are_about():
    obligation, code = listings("liveness.md")
    given = {"Eventually": Eventually, "borrower": FsmActor("b", BORROWER, RECORD), "CONNECTING": CONNECTING}
    assert eval(obligation, given).open(1)
    budget = eval(code, {"Budget": Budget, "Due": Due, "ExpiryTimer": ExpiryTimer, "RUNNING": RUNNING})
    assert (budget.name, budget.limit) == ("expiry", 1)
    assert budget.due.about(None, None, ExpiryTimer(key="b")) == "b"
    running = FsmActor("b", BORROWER, RECORD)
    assert budget.due.kept(running, running.initial()) == ("b~1",)


def test_every_strategy_on_the_page_draws():
    (code,) = listings("strategies.md")
    names = {"st": st, "of": of, "Pool": Pool, "Grant": Grant, "record": RECORD}
    drawn = re.findall(r"^@given\((.*)\) +#", code, re.M)
    assert len(drawn) == 3
    assert [one for one in drawn if not isinstance(eval(one, dict(names)), st.SearchStrategy)] == []


@pytest.mark.long
def test_a_consumer_takes_part_over_tls_with_the_secret(tmp_path):
    """The commands of stores.md, on a port that is free, with certificates for it."""
    text, recipe = re.findall(r"```sh\n(.*?)```", (DOCS / "stores.md").read_text(encoding="utf-8"), re.S)
    recipe = recipe.replace("DNS:host.example", "IP:127.0.0.1")
    subprocess.run(["sh", "-ec", recipe], cwd=tmp_path, check=True, capture_output=True)
    secret, leader, consumer = text.replace(".venv/bin/", f"{Path(sys.executable).parent}/").splitlines()
    address = f"127.0.0.1:{free_port()}"
    subprocess.run(["sh", "-c", secret], cwd=tmp_path, check=True)
    (tmp_path / "input.txt").write_text("hello\n")
    publish = f"{Path(sys.executable).parent}/gapless node publisher --store messages.db --input input.txt"
    subprocess.run(["sh", "-c", publish], cwd=tmp_path, check=True)
    pipes = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    begun = [
        subprocess.Popen(
            ["sh", "-c", f"exec timeout 90 {command}"], env={**os.environ, "PYTHONUNBUFFERED": "1"}, **pipes
        )
        for command in (f"{leader} --listen {address}", f"{consumer} --leader {address} --start beginning")
    ]
    try:
        assert begun[1].stdout.readline().endswith("hello\n")
    finally:
        for process in begun:
            process.terminate()
            process.communicate()
