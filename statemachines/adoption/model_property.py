"""Model properties: what must hold in every value of a subject, and which values are looked at at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from statemachines.adoption.expression import Expression, parse_expression
from statemachines.adoption.live_machine import AdoptedSubject, state_of
from statemachines.kernel import ConfigurationError

Promise = str | Callable[[Any], Any]
"""An expression, or a function of a model: it returns whether it holds, or asserts it."""


class ModelProperty:
    """One promise about each model of a subject; `name` as it is printed."""

    def __init__(self, name: str, key: str, holds: Promise) -> None:
        self.name = name
        self.key = key
        self._expression: Expression | None = parse_expression(holds, key) if isinstance(holds, str) else None
        self._function = None if isinstance(holds, str) else holds

    def check_names(self, subject: AdoptedSubject) -> None:
        """Raises `ConfigurationError` where the expression names an attribute that no model has."""
        if self._expression is None:
            return
        numbered = _numbered(subject)
        for name in self._expression.names:
            if name == "state" or name in numbered or any(hasattr(one, name) for one in subject.models):
                continue
            there = sorted(
                {
                    attribute
                    for model in subject.models
                    for attribute, value in vars(model).items()
                    if subject.is_own(model, attribute, value)
                }
            )
            close = get_close_matches(name, there, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            kinds = " or ".join(sorted({type(one).__name__ for one in subject.models}))
            rule = f"{kinds} has no attribute {name!r}; {hint}there are: {', '.join(there)}"
            raise ConfigurationError(self.key, self._expression.text, rule)

    def find_fixed(self, labels: set[str], changed: set[str]) -> list[str]:
        """The attributes that the expression is about, if no step changes any; `labels`: of all parts of a value."""
        names = self._expression.names if self._expression is not None else ()
        there = [{label for label in labels if name in label.split(".")} for name in names]
        return list(names) if all(there) and not set().union(*there) & changed else []

    def find_broken(self, subject: AdoptedSubject) -> int | None:
        """The place of the first model for which it does not hold (-1: it is about all); None: it holds for all.

        Raises `ConfigurationError` where it cannot be told.
        """
        numbered = _numbered(subject)
        is_about_all = self._expression is not None and set(self._expression.names) <= set(numbered)
        for place, model in enumerate(subject.models[:1] if is_about_all else subject.models):
            try:
                held = self._holds(subject, model)
            except Exception as error:
                where = f" in state {_name_state(subject, model)}" if hasattr(model, "state") else ""
                rule = f"cannot be told{where}: {type(error).__name__}: {error}"
                raise ConfigurationError(self.key, self.name, rule) from error
            if not held:
                return -1 if is_about_all else place
        return None

    def _holds(self, subject: AdoptedSubject, model: Any) -> bool:
        if self._function is not None:
            try:
                held = self._function(model)
            except AssertionError:
                return False
            return held is None or bool(held)
        assert self._expression is not None
        numbered = _numbered(subject)

        def look_up(name: str) -> Any:
            if name in numbered:
                return numbered[name]
            return _name_state(subject, model) if name == "state" else getattr(model, name)

        return self._expression.evaluate(look_up)


def _name_state(subject: AdoptedSubject, model: Any) -> Any:
    """The state as text; where no machine keeps it in `state`, the attribute of that name."""
    for machine in subject.machines:
        if machine.model_attribute == "state" and any(model is one for one in machine.models):
            return state_of(machine, model)
    return getattr(model, "state")  # noqa: B009


def _numbered(subject: AdoptedSubject) -> dict[str, Any]:
    """Several models by name, for an expression about more than one of them."""
    return dict(zip(subject.names, subject.models, strict=False)) if len(subject.models) > 1 else {}


def read_properties(holds: Mapping[str, Promise], key: str) -> tuple[ModelProperty, ...]:
    """Properties by name."""
    return tuple(ModelProperty(name, key, one) for name, one in holds.items())
