"""Adopted machines: a plain `transitions` machine, searched, simulated and judged as it is.

order = adopt(make_order, invariants={"paid": "paid >= 0"}, triggers={"pay": [(5,), (7,)]})
found = order.search()
assert found.broken is None, order.describe(found)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from time import perf_counter
from typing import Any

import msgspec

from statemachines.adoption.expression import Promise, read_properties
from statemachines.adoption.model_step import ModelStepper, name_action
from statemachines.adoption.model_value import Factory, ModelValue
from statemachines.adoption.second_search import (
    PATIENCE_S,
    SearchRequest,
    SecondSearch,
    can_import_elsewhere,
    can_send,
    search_again,
    summarize,
)
from statemachines.adoption.state_search import (
    Bounds,
    FoundViolation,
    Progress,
    SearchResult,
    SearchStep,
    StateSearch,
    StepDigests,
)
from statemachines.adoption.trigger_arguments import Calls, list_calls
from statemachines.kernel import ConfigurationError
from statemachines.registry import make_unknown_error

STATES_MAX = 100_000
SECONDS = 60.0


class AdoptionVerdict(msgspec.Struct, frozen=True):
    """What a search came to, with its bounds.  `repeated`: steps that were taken again, `elsewhere`: in another process
    under another hash seed."""

    found: SearchResult
    repeated: int
    elsewhere: bool
    seconds: float
    states_max: int
    seconds_max: float

    @property
    def is_held(self) -> bool:
        """Nothing broke, as far as was looked."""
        return self.found.broken is None

    @property
    def is_complete(self) -> bool:
        """Everything within the bounds was looked at, and every trigger was called."""
        return self.found.ended == "complete" and not self.found.unexplored


class AdoptedMachine:
    """A machine of somebody's; made by `adopt`."""

    def __init__(self, stepper: ModelStepper, request: SearchRequest, calls: Calls, methods: Calls) -> None:
        self.stepper = stepper
        self.place = request.place
        self.values: dict[bytes, ModelValue] = {}
        """Values by their codes, for who explores several instances by tables."""
        actions, self.unexplored = list_calls(stepper, calls, methods)
        self.request = msgspec.structs.replace(request, calls=actions)
        self.properties = read_properties(request.holds, "--holds")
        self.within = read_properties(request.within, "--within")
        for one in (*self.properties, *self.within):
            one.check_names(stepper.first)
        with stepper.install(), stepper.sandbox.enclose():
            for one in self.within:
                if one.find_broken(stepper.initial.origin) is not None:
                    rule = "excludes the state that the factory makes, so nothing would be looked at; widen it"
                    raise ConfigurationError("--within", one.name, rule)

    def search(
        self,
        *,
        states_max: int = STATES_MAX,
        seconds: float = SECONDS,
        elsewhere: bool = True,
        progress: Progress | None = None,
    ) -> AdoptionVerdict:
        """Take every step from every value that can be reached, and look for one that breaks a promise.

        Args:
            states_max: give up beyond so many values.
            seconds: give up after so long.
            elsewhere: search again in another process, under another hash seed, if it can import the factory.
            progress: called now and then with the numbers of values and steps.

        Raises `NotRepeatable` where a step does not come out the same twice.
        """
        request = msgspec.structs.replace(self.request, states_max=states_max, seconds=seconds)
        bounds = Bounds(self.within, states_max, seconds)
        digests = StepDigests()
        search = StateSearch(
            self.stepper,
            request.calls,
            self.properties,
            bounds,
            raises=request.raises,
            record=digests.record,
            progress=progress,
        )
        began = perf_counter()
        elsewhere = elsewhere and can_import_elsewhere(self.place, self.stepper.maker.factory) and can_send(request)
        if elsewhere:
            with SecondSearch(request) as second:
                found = search.run()
                theirs = second.read_digests(perf_counter() - began + PATIENCE_S)
                if theirs is not None:
                    self._compare(digests, theirs, second)
        else:
            found, theirs = search.run(), None
        if theirs is None:
            elsewhere = False
            if found.ended != "interrupted":
                theirs = search_again(self.stepper, request)
                self._compare(digests, theirs, None)
        found.unexplored = self.unexplored
        repeated = len(digests.made.keys() & (theirs or {}).keys())
        return AdoptionVerdict(found, repeated, elsewhere, perf_counter() - began, states_max, seconds)

    def follow(self, calls: Iterable[str]) -> FoundViolation | None:
        """Take the calls of a run one after the other, each as it is printed; what breaks on the way, or None.

        Raises `ConfigurationError` for a call that cannot happen there.
        """
        stepper, legs = self.stepper, list[SearchStep]()
        value = stepper.initial
        with stepper.install():
            broken = self._judge(value, ())
            for call in calls:
                if broken is not None:
                    break
                actions = {name_action(stepper, one): one for one in stepper.actions_in(value, self.request.calls)}
                if call not in actions:
                    raise make_unknown_error("call", call, actions)
                outcome = stepper.step(value, actions[call])
                legs.append(SearchStep(actions[call], value, outcome))
                value = outcome.value
                if outcome.kind == "raised" and outcome.error_type not in self.request.raises:
                    broken = FoundViolation(f"raises {outcome.error_type}", outcome.error, tuple(legs))
                else:
                    broken = self._judge(value, tuple(legs))
        return broken

    def _judge(self, value: ModelValue, legs: tuple[SearchStep, ...]) -> FoundViolation | None:
        for one in self.properties:
            with self.stepper.sandbox.enclose():
                place = one.find_broken(value.origin)
            if place is not None:
                return FoundViolation(one.name, "does not hold", legs)
        return None

    def _compare(self, digests: StepDigests, theirs: dict[bytes, bytes], second: SecondSearch | None) -> None:
        """Raises `NotRepeatable` for the first step that came out differently, naming attribute and callback."""
        key = next(digests.find_differing(theirs), None)
        if key is None:
            return
        value, action = digests.where[key]
        stepper = self.stepper
        with stepper.install():
            outcome = stepper.step(value, action)
            said, parts = summarize(outcome)
            other = second.read_outcome(key) if second is not None else None
            if other is None:
                other = summarize(stepper.step(value, action))
            once = f"gives {said!r} once and {other[0]!r} another time"
            once = "does not give the same twice" if said == other[0] else once
            where = " under another hash seed" if second is not None else " when steps are taken in another order"
            raise stepper.make_unlike_error(value, action, (parts, other[1]), once, where)


def adopt(
    factory: Factory,
    *,
    invariants: Mapping[str, Promise] | Iterable[Promise] = (),
    within: Mapping[str, Promise] | Iterable[Promise] = (),
    triggers: Calls | None = None,
    methods: Calls | None = None,
    ports: Mapping[str, Mapping[str, Any] | None] | Iterable[str] = (),
    allow: Iterable[str] = (),
    raises: Iterable[str | type[BaseException]] = (),
    key: Callable[[Any], Any] | None = None,
    auto: bool = False,
    place: str = "",
) -> AdoptedMachine:
    """A machine that `factory()` makes anew each time: it returns a model, a `transitions.Machine`, or several.

    Args:
        factory: called thousands of times; it takes no arguments.
        invariants: what must hold in every state: expressions (`"paid >= 0"`) or functions of a model.
        within: values beyond these are not looked at; they are counted.
        triggers: trigger -> argument tuples, or dictionaries of named arguments, that it is called with.
        methods: the same of ordinary methods of the model, which are called as well.
        ports: attributes that recorders stand for, perhaps with what their methods return.
        allow: kinds of what is blocked otherwise: files, sockets, processes, threads, time, random.
        raises: exceptions that are no error.
        key: what identifies the value of a model, in place of all its attributes.
        auto: also call the `to_STATE` triggers that `auto_transitions` makes.

    Raises:
        ConfigurationError: one line that names what cannot be adopted, and what to do.
    """
    if not callable(factory):
        rule = "must be a function that makes a machine and takes no arguments, not the machine itself"
        raise ConfigurationError("factory", place or type(factory).__name__, rule)
    where = place or f"{factory.__module__}:{getattr(factory, '__qualname__', type(factory).__name__)}"
    named_ports = dict(ports) if isinstance(ports, Mapping) else dict.fromkeys(ports)
    stepper = ModelStepper(factory, where, allow=tuple(allow), ports=named_ports, key=key, automatic=auto)
    names = frozenset(one if isinstance(one, str) else one.__name__ for one in raises)
    there = {kind.__name__ for kind in _walk_kinds(BaseException)}
    for name in sorted(names - there):
        raise make_unknown_error("--raises", name, sorted(there))
    request = SearchRequest(
        where,
        (),
        name_promises(invariants),
        name_promises(within),
        STATES_MAX,
        SECONDS,
        allow=tuple(allow),
        ports=named_ports,
        raises=names,
        key=key,
        automatic=auto,
    )
    return AdoptedMachine(stepper, request, triggers or {}, methods or {})


def _walk_kinds(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    """A class and all that derive from it, as far as they are imported."""
    yield kind
    for one in kind.__subclasses__():
        yield from _walk_kinds(one)


def name_promises(given: Mapping[str, Promise] | Iterable[Promise]) -> dict[str, Promise]:
    """Promises by name: an expression is its own, a function has one."""
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, str):
        return {given: given}
    return {one if isinstance(one, str) else getattr(one, "__name__", "a promise"): one for one in given}
