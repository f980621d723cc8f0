"""Steps texts: what cannot be played is named, and what differs is shown as a difference."""

import pytest

from statemachines.kernel import Fsm, Invariant, InvariantViolated, LocalProtocolError
from statemachines.persistent_sessions.takeover import TAKEOVER
from statemachines.shared_subscriptions.agent_process import AGENT as AGENT_PROCESS
from statemachines.testing.steps import StepsError, StepsFile

STARTS = """use statemachines.persistent_sessions: takeover takeover_record times
let BEGUN = TakeoverBegun("c", 7)
start new = TAKEOVER TakeoverRecord("s", "c", "owner~1", 7, "old~1", Times())
start begun = new: StartTakeover(); BEGUN
"""

AGENT = """use statemachines.shared_subscriptions: agent_process private_subscription configuration group_store
start agent = AGENT AgentRecord("c1~1", ("leader-1",), Configuration())

SS-170 A subscribe
agent: SubscribeShared(SharedFilter("g", "#")); ("c1~1/declare-1", StoreFailed(1)); EndSubscription("c1~1/1")
"""


@pytest.fixture
def steps(tmp_path):
    def write(text):
        path = tmp_path / "steps.txt"
        path.write_text(STARTS + text)
        return StepsFile(path)

    return write


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("new: Nothing()", "'Nothing': is no name here"),
        ("old: BEGUN", "'old': is no name here.*new, begun"),
        ("let BEGUN = 1", "has been named before"),
        ("start wrong = new: BEGUN\nwrong: BEGUN", "does not begin: it refuses TakeoverBegun"),
        ("new: StartTakeover(", "is no expression"),
        ("show: [one for one in (1, 2)]", "is no value that a steps text may have"),
        ("show: msgspec", "'msgspec': is no name here"),
        ("show: BEGUN.__class__", "is no value that a steps text may have"),
        ("begun: @0; fire; fire; fire", "no timer is armed"),
        ("new; StartTakeover()", "is no line of steps"),
        ("PS-170 A title\n\nPS-171 Another\nnew: StartTakeover()", "PS-170 A title.*has no run below it"),
    ],
)
def test_what_cannot_be_played_is_named(steps, line, why):
    with pytest.raises(StepsError, match=why):
        steps(f"{line}\n").rewrite()


def refuse(*step):
    raise LocalProtocolError("takeover", "new", "start_takeover", "", "refused")


@pytest.mark.parametrize(
    ("owner", "name", "value", "why"),
    [
        (Fsm, "reference_step", refuse, "`transitions` refuses it"),
        (Fsm, "reference_step", lambda *step: None, "`transitions` takes another step"),
        (TAKEOVER, "invariants", (Invariant("never", "PS-170", lambda record: False),), "never does not hold"),
        (AGENT_PROCESS.fsm, "invariants", (Invariant("never", "SS-170", lambda record: False),), "never does not hold"),
    ],
)
def test_each_step_is_judged(steps, monkeypatch, owner, name, value, why):
    monkeypatch.setattr(owner, name, value)
    with pytest.raises((AssertionError, InvariantViolated), match=why):
        steps(f"new: StartTakeover()\n{AGENT}").rewrite()
