"""Rows about adopted machines: transitions a second, against the plainest search, which copies models deeply.

The baseline is a search of our own: breadth first, with a copy of the model for every call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import partial
from time import process_time
from typing import Any

from transitions import Machine, MachineError

from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

CALLS: tuple[tuple[str, tuple[int, ...]], ...] = (
    *(("pay", (amount,)) for amount in (1, 2)),
    *((name, ()) for name in ("ship", "cancel", "refund")),
)
LIMITS = (200, 12)
"""How much is paid at most, at full size and in little."""
PRODUCT_LIMITS = (30, 4)
PREFIX = (400, 60)
"""States that the plainest search of a product explores."""


class ShopOrder:
    """An order of a shop."""

    def __init__(self) -> None:
        self.price = 2
        self.paid = 0

    def take(self, amount: int) -> None:
        """Book a payment."""
        self.paid += amount

    def is_covered(self) -> bool:
        """Whether the goods may leave."""
        return self.paid >= self.price

    def give_back(self) -> None:
        """Book the refund."""
        self.paid -= self.price


def make_order() -> ShopOrder:
    """An order on a machine of its own."""
    order = ShopOrder()
    states = ["new", "paying", "shipped", "cancelled", "refunded"]
    machine = Machine(order, states, initial="new", auto_transitions=False)
    machine.add_transition("pay", ["new", "paying"], "paying", before="take")
    machine.add_transition("ship", "paying", "shipped", conditions="is_covered")
    machine.add_transition("cancel", ["new", "paying"], "cancelled")
    machine.add_transition("refund", "cancelled", "refunded", after="give_back")
    return order


def rate_adopted(limit: int) -> float:
    """Transitions a second of processor time: every step taken once, its value read back and compared."""
    from statemachines.adoption import adopt
    from statemachines.adoption.state_search import Bounds, StateSearch

    adopted = adopt(make_order, within=[f"paid <= {limit}"], triggers=_group_calls())
    bounds = Bounds(adopted.within, 1_000_000, 600.0)
    began = process_time()
    found = StateSearch(adopted.stepper, adopted.request.calls, (), bounds).run()
    assert found.ended == "complete"
    return found.steps / (process_time() - began)


def rate_product(limit: int) -> float:
    """Transitions a second of three instances, by tables, the steps that make them included."""
    from statemachines.adoption import adopt
    from statemachines_spec.explorer.adopted_actor import build_adopted_system
    from statemachines_spec.explorer.explore import COMPLETE, explore

    adopted = adopt(make_order, within=[f"paid <= {limit}"], triggers=_group_calls())
    system = build_adopted_system("three-orders", dict.fromkeys(("one", "two", "three"), adopted))
    result = explore(system, hashing=False)
    assert result.ended == COMPLETE
    return result.transitions / result.seconds


def _group_calls() -> dict[str, list[tuple[int, ...]]]:
    return {name: [args for one, args in CALLS if one == name] for name, _ in CALLS}


def rate_plainest(instances: int, limit: int, states_max: int) -> float:
    """Transitions a second of the plainest search: models are copied deeply for every call; refused ones count too, as
    `rate_adopted` counts them, unless there are several instances."""
    first = tuple(make_order() for _ in range(instances))
    seen = {_key(first)}
    queue = deque([first])
    steps, began = 0, process_time()
    while queue and len(seen) < states_max:
        models = queue.popleft()
        for place, (name, args) in ((place, call) for place in range(instances) for call in CALLS):
            after = deepcopy(models)
            try:
                after[place].trigger(name, *args)  # type: ignore[attr-defined]
                steps += 1
            except MachineError:
                steps += instances == 1
                continue
            key = _key(after)
            if key not in seen and all(one.paid <= limit for one in after):
                seen.add(key)
                queue.append(after)
    return steps / (process_time() - began)


def _key(models: Iterable[Any]) -> tuple[Any, ...]:
    return tuple((one.state, one.paid, one.price) for one in models)


def prepare_one(size: Size) -> TurnPair:
    limit = size.pick(*LIMITS)
    return TurnPair(partial(rate_adopted, limit), partial(rate_plainest, 1, limit, 1_000_000))


def prepare_product(size: Size) -> TurnPair:
    limit, prefix = size.pick(*PRODUCT_LIMITS), size.pick(*PREFIX)
    baseline: Callable[[], float] = partial(rate_plainest, 3, limit, prefix)
    return TurnPair(partial(rate_product, limit), baseline)


ROWS = (
    BenchRow(
        name="adopt-explore",
        about="searching one plain transitions machine: each step on a fresh model, its value set and read back",
        unit="transitions / s",
        baseline_name="plain Python search by deepcopy of the model",
        prepare=prepare_one,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=0.5,
    ),
    BenchRow(
        name="adopt-product",
        about="exploring three adopted instances side by side by tables, the steps that make them included",
        unit="transitions / s",
        baseline_name=f"plain Python search by deepcopy of the models, first {PREFIX[0]:,} states",
        prepare=prepare_product,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=10,
    ),
)
