"""Run text: a run of an adopted machine as text, as a Mermaid sequence diagram and as a pytest function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

from statemachines.adoption.adopted_machine import AdoptedMachine
from statemachines.adoption.canonical_value import hide_addresses
from statemachines.adoption.model_step import ModelStepper, name_action
from statemachines.adoption.model_value import ModelValue
from statemachines.adoption.state_search import FoundViolation, SearchStep

SHOWN_MAX: Final = 60
"""Characters of a value that are shown."""


def describe_run(stepper: ModelStepper, broken: FoundViolation) -> str:
    """What happened, step by step: states, rows, attributes that changed, calls of ports."""
    lines = []
    for number, leg in enumerate(broken.legs, 1):
        lines.append(f"{number:3}. {name_action(stepper, leg.action)}")
        lines += [f"       {line}" for line in _leg_lines(stepper, leg)]
    lines.append(f"broken: {broken.name}: {broken.why}")
    return "\n".join(lines)


def _leg_lines(stepper: ModelStepper, leg: SearchStep) -> Iterator[str]:
    outcome = leg.outcome
    if leg.fault:
        yield f"fault: {leg.fault}"
    if outcome.kind == "crashed":
        return
    for row, trigger, model, source, dest in outcome.rows:
        of = stepper.first.name_model(model)
        by = f"row {row}" if row >= 0 else "no declared row"
        where = f"{source} -> {dest}" if source != dest else f"stays in {source}"
        where = where if dest else f"begins in {source}, and ends before it sets its state,"
        yield f"{f'{of}: ' if of else ''}{where} by {trigger}, {by}"
    if outcome.kind == "refused":
        yield f"refused: {outcome.error}"
    elif outcome.kind == "nothing":
        yield "no row was taken"
    elif outcome.kind == "raised":
        yield f"raised {outcome.error}"
    yield from list_changes(leg.before, outcome.value)
    for call in outcome.effects:
        yield f"calls {call}"


def list_changes(before: ModelValue, after: ModelValue) -> Iterator[str]:
    """The attributes that have changed, but for states that rows tell of."""
    old, new = dict(before.parts), dict(after.parts)
    states = {machine.model_attribute for machine in after.origin.machines}
    for label in dict.fromkeys((*old, *new)):
        if old.get(label) != new.get(label) and label.rpartition(".")[2] not in states:
            yield f"{label}: {_show_attribute(before, label)} -> {_show_attribute(after, label)}"


def _show_attribute(value: ModelValue, label: str) -> str:
    parts = dict(value.parts)
    if label not in parts:
        return "(none)"
    for name, attributes in zip(value.origin.names, value.attributes, strict=True):
        for attribute, one in attributes.items():
            if label in (attribute, f"{name}.{attribute}"):
                return _short(_safe_repr(one))
    return _short(parts[label].decode("utf-8", "replace"))


def _safe_repr(value: Any) -> str:
    try:
        return hide_addresses(repr(value))
    except Exception as error:  # somebody's __repr__
        return f"<{type(value).__name__}: {type(error).__name__}>"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 3]}..."


def draw_run(stepper: ModelStepper, broken: FoundViolation) -> str:
    """A Mermaid sequence diagram: who calls what, the states, what is called on ports."""
    ports = dict.fromkeys(call.port for leg in broken.legs for call in leg.outcome.effects)
    models = [name for place, name in enumerate(stepper.first.names) if place < len(stepper.first.models)]
    lines = ["sequenceDiagram", "    participant caller"]
    lines += [f"    participant {_id(name)} as {name}" for name in (*models, *ports)]
    for number, leg in enumerate(broken.legs, 1):
        own = _id(models[leg.action.model])
        lines.append(f"    caller->>{own}: {number}. {_plain(leg.action.call)}")
        lines += [f"    {own}->>{_id(call.port)}: {_plain(str(call))}" for call in leg.outcome.effects]
        for _, _, model, source, dest in leg.outcome.rows:
            said = f"{source} -> {dest}" if dest not in ("", source) else source
            lines.append(f"    Note right of {_id(models[model])}: {_plain(said)}")
        if leg.outcome.error:
            lines.append(f"    {own}--xcaller: {_plain(leg.outcome.error)}")
        lines += [f"    Note right of {own}: {_plain(one)}" for one in list_changes(leg.before, leg.outcome.value)]
    lines.append(f"    Note over caller,{_id(models[-1])}: broken: {_plain(broken.name)}")
    return "\n".join(lines) + "\n"


def _id(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _plain(text: str) -> str:
    """Without what Mermaid reads as the end of a statement or a comment."""
    return re.sub(r"[;#\n]", ",", text)


# -- a test to paste ------------------------------------------------------------------------------------------------


def write_test(adopted: AdoptedMachine, broken: FoundViolation) -> str:
    """A pytest function that takes the same steps: on the machine itself where that is possible, else by `follow`."""
    name = re.sub(r"\W+", "_", f"{'_'.join(leg.action.name or 'timeout' for leg in broken.legs)}_{broken.name}")
    function = f"test_{name.strip('_').lower()[:80]}"
    module, _, attribute = adopted.place.partition(":")
    if module == "__main__" or not attribute.isidentifier():
        return f"# {adopted.place} cannot be imported by a test; put the factory into a module\n"
    holds = adopted.request.holds.get(broken.name)
    if _is_plain(adopted, broken, holds):
        return _plain_test(adopted, broken, function, module, attribute)
    calls = ", ".join(repr(name_action(adopted.stepper, leg.action)) for leg in broken.legs)
    given = _arguments_of(adopted)
    promise = f", invariants={{{broken.name!r}: {holds!r}}}" if isinstance(holds, str) else ""
    if holds is not None and not isinstance(holds, str):
        if not broken.name.isidentifier() or getattr(holds, "__module__", "") != module:
            return f"# {broken.name} cannot be imported by a test; make it a function of {module}\n"
        promise, attribute = f", invariants=[{broken.name}]", f"{attribute}, {broken.name}"
    lines = [
        "from statemachines.adoption import adopt",
        f"from {module} import {attribute}",
        "",
        "",
        f"def {function}():",
        f"    adopted = adopt({attribute.partition(',')[0]}{promise}{given})",
        f"    assert adopted.follow([{calls}]) is None",
    ]
    return "\n".join(lines) + "\n"


def _is_plain(adopted: AdoptedMachine, broken: FoundViolation, holds: Any) -> bool:
    """Whether the run can be taken by calling methods of the model, and what breaks be asserted there."""
    subject = adopted.stepper.first
    is_one = len(subject.models) == 1 and len(subject.machines) == 1
    is_async = any(hasattr(machine, "async_tasks") for machine in subject.machines)
    is_told = isinstance(holds, str) or bool(broken.legs and broken.legs[-1].outcome.kind == "raised")
    is_called = all(leg.action.name.isidentifier() and not leg.action.timeout for leg in broken.legs)
    is_bound = all(hasattr(subject.models[0], leg.action.name) for leg in broken.legs if not leg.action.timeout)
    is_real = not adopted.request.ports and subject.models[0] is not subject.machines[0]
    is_model = adopted.stepper.maker.made_model
    return is_one and not is_async and is_told and is_called and is_bound and is_real and is_model


def _plain_test(adopted: AdoptedMachine, broken: FoundViolation, function: str, module: str, attribute: str) -> str:
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(adopted.stepper.first.models[0]).__name__).lower().strip("_")
    name = name if name.isidentifier() and name != attribute else "model"
    holds = adopted.request.holds.get(broken.name)
    body = [f"    {name} = {attribute}()"]
    imports = [f"from {module} import {attribute}"]
    for leg in broken.legs:
        call = f"{name}.{leg.action.call}"
        if leg.outcome.kind == "refused":
            imports += ["import pytest", "from transitions import MachineError"]
            body += ["    with pytest.raises(MachineError):", f"        {call}"]
        else:
            raised = leg.outcome.error if leg.outcome.kind == "raised" else ""
            body.append(f"    {call}" + (f"  # {_one_line(raised)}" if raised else ""))
    if isinstance(holds, str):
        body.append(f"    assert {_assertion(holds, name)}")
    return "\n".join([*dict.fromkeys(imports), "", "", f"def {function}():", *body]) + "\n"


def _assertion(expression: str, model: str) -> str:
    """The expression about attributes of `model`."""

    class Owner(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            if node.id == "len":
                return node
            return ast.Attribute(ast.Name(model, ast.Load()), node.id, ast.Load())

    return ast.unparse(Owner().visit(ast.parse(expression.strip(), mode="eval")))


def _one_line(text: str) -> str:
    return _short(text.replace("\n", " "))


def _arguments_of(adopted: AdoptedMachine) -> str:
    """The other arguments of `adopt` that the run needs."""
    request = adopted.request
    triggers = {one.name for one in adopted.stepper.triggers}
    calls: dict[str, dict[str, list[Any]]] = {"triggers": {}, "methods": {}}
    for one in request.calls:
        kind, given = "triggers" if one.name in triggers else "methods", one.kwargs or one.args
        if (given or kind == "methods") and given not in calls[kind].setdefault(one.name, []):
            calls[kind][one.name].append(given)
    said = [f"{kind}={some!r}" for kind, some in calls.items() if some]
    if request.ports:
        said.append(f"ports={request.ports!r}")
    if request.allow:
        said.append(f"allow={request.allow!r}")
    if request.automatic:
        said.append("auto=True")
    return "".join(f", {one}" for one in said)
