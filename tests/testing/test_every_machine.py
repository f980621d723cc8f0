"""Every catalogued machine under any events: see `statemachines.testing.machine` for what is compared and checked."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from itertools import count

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from statemachines import catalogue, kernel
from statemachines.testing.machine import MachineTest
from statemachines.testing.protocol import environment_of

BOUNDS = settings(max_examples=60, stateful_step_count=30, suppress_health_check=list(HealthCheck))


def run(kind, examples=40):
    run_state_machine_as_test(kind, settings=settings(BOUNDS, max_examples=examples))


@pytest.mark.parametrize("examples", [8, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", catalogue.names())
def test_every_machine_keeps_its_promises_and_asks_for_what_is_there(name, examples):
    """Else its tests would wait for answers that nobody gives, and say nothing about what follows."""
    fsm = catalogue.machine(name)
    kind = MachineTest.of(fsm)
    asked = set()
    kind.watch = [
        lambda node, event, step: asked.update(one.service for one in step.effects if isinstance(one, kernel.Ask))
    ]
    run(kind, examples)
    assert asked <= set(environment_of(fsm).services)


# -- what such a test finds -----------------------------------------------------------------------------------------


class Lamp(kernel.Status):
    OFF = "off"
    ON = "on"
    BROKEN = "broken"


class Press(kernel.Call, frozen=True):
    force: int


class Dim(kernel.TimerFired, frozen=True):
    pass


class LampRecord(msgspec.Struct, frozen=True):
    name: str
    status: Lamp = Lamp.OFF
    presses: int = 0
    seen: kernel.Map[str, int] = kernel.Map()


def press(record, event, now_ns):
    return replace(record, presses=record.presses + 1), (kernel.SetTimer("dim", now_ns + 5 * event.force),)


def lamp(do=press, few=lambda record: True):
    """A lamp whose switch does `do`, and that promises `few`."""
    rows = (
        kernel.Row(Press, Lamp.OFF, Lamp.ON, do, None, "T-1"),
        kernel.Row(Press, Lamp.ON, kernel.STAY, do, lambda record, event: event.force < 3, "T-1"),
        kernel.Row(Press, Lamp.ON, Lamp.BROKEN, None, None, "T-1"),
        kernel.Row(Dim, Lamp.ON, Lamp.OFF, None, None, "T-1"),
        kernel.Ignore((Dim,), Lamp.OFF, "T-1"),
    )
    return kernel.Fsm(
        "lamp",
        record=LampRecord,
        states=Lamp,
        initial=Lamp.OFF,
        final=(Lamp.BROKEN,),
        rows=rows,
        timers=(kernel.Timer("dim", Dim, (Lamp.ON,), lambda record: 5),),
        invariants=(kernel.Invariant("few", "T-1", few),),
    )


def looks_at_the_clock(record, event, now_ns):
    return press(record, event, now_ns) if now_ns < 10**15 else (record, ())


def throws_a_coin(record, event, now_ns, coin=count()):  # noqa: B008 (one coin for all steps is the mistake)
    return replace(record, presses=next(coin)), ()


def forgets_what_it_cannot_write_down(record, event, now_ns):
    return replace(record, presses=str(record.presses)), ()


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (lamp(looks_at_the_clock), AssertionError),
        (lamp(throws_a_coin), AssertionError),
        (lamp(forgets_what_it_cannot_write_down), (AssertionError, msgspec.ValidationError)),
        (lamp(few=lambda record: record.presses < 3), kernel.InvariantViolated),
    ],
)
def test_a_machine_that_breaks_a_promise_is_found(broken, error):
    with pytest.raises(error):
        run_state_machine_as_test(MachineTest.of(broken), settings=settings(BOUNDS, phases=[Phase.generate]))


# -- the order of maps ----------------------------------------------------------------------------------------------

DIGEST = """
import hashlib
import msgspec
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from statemachines import catalogue
from statemachines.kernel.pmap import enc_hook
from statemachines.testing.machine import MachineTest
def written(row, event, effects):
    names = [type(one).__name__ for one in (event, *effects)]
    return msgspec.json.encode((row, names, event, effects), enc_hook=enc_hook)  # repr shows maps in no order
digest = hashlib.sha256()
for name in {names!r}:
    kind = MachineTest.of(catalogue.machine(name))
    kind.watch = [lambda node, event, step: digest.update(written(step.row, event, step.effects))]
    run_state_machine_as_test(kind, settings=settings(
        max_examples={examples}, stateful_step_count=30, derandomize=True, database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    ))
print(digest.hexdigest())
"""


@pytest.mark.parametrize("examples", [1, pytest.param(5, marks=pytest.mark.long)])
def test_no_step_depends_on_the_order_of_a_map(examples):
    """The same examples under two hash seeds take the same rows with the same effects."""
    digests = set()
    for hash_seed in ("1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        program = DIGEST.format(names=catalogue.names(), examples=examples)
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout)
    assert len(digests) == 1
    assert digests != {hashlib.sha256().hexdigest() + "\n"}
