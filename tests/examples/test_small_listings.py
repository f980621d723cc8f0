"""Small listings: what pages show in passing runs, too; a fragment with what its page takes for granted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import strategies as st
from msgspec.structs import replace

from statemachines.shared_subscriptions.borrower import BORROWER, BorrowerRecord
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.member import ExpiryTimer
from statemachines.shared_subscriptions.message import Grant
from statemachines.testing.pool import Pool
from statemachines.testing.strategies import of
from statemachines_spec import FsmActor, Network, System
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


def test_the_fragment_of_a_budget_says_what_it_is_about():
    (code,) = listings("liveness.md")
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
