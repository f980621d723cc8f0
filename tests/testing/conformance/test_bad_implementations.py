"""Implementations that do not keep to the interface: one line names the thing and the mend, and no process is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from statemachines import cli
from statemachines.kernel import ConfigurationError
from statemachines.testing.conformance.campaign import Campaign, ConformanceOutcome
from statemachines.testing.conformance.child_process import (
    STDERR_BYTES_MAX,
    ChildProcess,
    ImplementationEnded,
)
from statemachines.testing.conformance.interface import InterfaceError

sys.path.insert(0, str(Path(__file__).parent))
from toy_role import COMMAND, role

sys.path.pop(0)

PATIENCE_S = 5.0
"""Longer than a busy machine needs to start an implementation."""

BROKEN = {
    "logs": "answers with no JSON (JSON is malformed: invalid character (byte 0)): 'opening the door'; "
    "an answer is one line of it, and logs go to stderr",
    "a long line": "answers with more than 1,000,000 bytes on one line; an answer has fewer",
    "other fields": "does not keep to the interface: Object contains unknown field `deadline` - at `$.effects[0]`; "
    "`gapless schema ROLE` prints what an answer may hold",
    "answers for another": "says that it answers line 2; each line is answered once, before the next one comes",
    "newer": "speaks version 2 of the interface, and this kit speaks 1: install the gapless that it is for",
    "a deep answer": "answers with no JSON (maximum recursion depth exceeded",
    "bytes": "answers with no JSON ('utf-8' codec can't decode byte 0xff",
    "many effects": "answers with 5,000 effects; an answer has 4,096 at most",
    "many timers": "sets more than 10,000 timers; take those back that you do not wait for",
    "answers twice": "each line is answered once, and logs go to stderr",
}
UNCLEAR = {
    "never answers": "has not answered after 5 s; answer each line, and flush the output, or give it longer",
    "half a line": "has begun a line and not ended it after 5 s: '{'; end it, and flush",
    "ever later timers": "timers were due 1,000 times",
}
FAILED = {
    "dies": "has ended with exit code 1; it must answer until its input is closed; its last line on stderr: no more",
    "closes its output": "has closed its output; it must answer until its input is closed",
    "closes its input": "has closed its input; it must answer until its input is closed",
    "timers for ever": "sets timers for now for ever: t",
}


@pytest.fixture
def processes():
    """Those that were started; none lives at the end."""
    started = []
    yield started
    for one in started:
        with pytest.raises(ProcessLookupError):
            os.kill(one._process.pid, 0)


@pytest.fixture
def campaign(processes):
    def make(how):
        def open_one():
            processes.append(ChildProcess((*COMMAND, how), patience_s=PATIENCE_S))
            return processes[-1]

        return Campaign(role(), open_one)

    return make


@pytest.mark.parametrize("how", BROKEN)
def test_an_answer_that_is_no_line_of_the_interface_is_wrong_usage(campaign, how):
    with pytest.raises(InterfaceError) as caught:
        campaign(how).judge(runs=2)
    assert BROKEN[how] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, ImplementationEnded)


@pytest.mark.parametrize("how", UNCLEAR)
def test_what_could_not_be_judged_is_inconclusive(campaign, how):
    verdict = campaign(how).judge(runs=2)
    assert verdict.outcome is ConformanceOutcome.INCONCLUSIVE
    assert UNCLEAR[how] in verdict.why


@pytest.mark.parametrize("how", FAILED)
def test_one_that_ends_or_spins_where_an_answer_is_owed_has_failed(campaign, how, monkeypatch):
    monkeypatch.setattr("statemachines.testing.conformance.child_process.END_S", 0.1)
    monkeypatch.setattr("statemachines.testing.conformance.campaign.REPLAYS_MAX", 5)
    verdict = campaign(how).judge(runs=2)
    assert verdict.outcome is ConformanceOutcome.FAIL
    assert FAILED[how] in verdict.why


def test_logs_without_end_are_not_kept(campaign, processes, monkeypatch):
    monkeypatch.setattr("statemachines.testing.conformance.child_process.LINES", 1)
    sizes = []

    def trim(process):
        sizes.append(os.fstat(process._stderr.fileno()).st_size)
        original(process)
        assert os.fstat(process._stderr.fileno()).st_size <= STDERR_BYTES_MAX

    original = ChildProcess._trim_stderr
    monkeypatch.setattr(ChildProcess, "_trim_stderr", trim)
    assert campaign("logs without end").judge(runs=0).outcome is ConformanceOutcome.PASS
    assert STDERR_BYTES_MAX < max(sizes) <= 3_000_000


def test_one_that_ends_at_once_was_never_judged(processes):
    def open_one():
        processes.append(ChildProcess((sys.executable, "-c", "import sys; sys.exit('no such module')")))
        return processes[-1]

    with pytest.raises(
        ImplementationEnded, match=r"line 1 \(init\): the implementation has ended with exit code 1.*no such module"
    ):
        Campaign(role(), open_one).judge()


def test_a_command_that_is_none_says_so():
    with pytest.raises(ConfigurationError, match="cannot be started: No such file or directory; after -- stands"):
        ChildProcess(("no-such-command",))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("conform", "nobody", "--", "cat"), "unknown"),
        (("conform", "door"), "COMMAND"),
        (("schema", "nothing"), "unknown"),
    ],
)
def test_wrong_usage_has_exit_code_2(capsys, arguments, said):
    assert cli.run(arguments) == 2
    assert said in capsys.readouterr().err
