"""Verdict text: what a search of an adopted machine came to, for people and for programs; bounds are always there."""

from __future__ import annotations

from typing import Any, Final

from statemachines.adoption.adopted_machine import AdoptedMachine, AdoptionVerdict
from statemachines.adoption.model_step import ModelAction, name_action
from statemachines.adoption.run_text import describe_run, draw_run, write_test

ROWS_SHOWN: Final = 40
CALLS_SHOWN: Final = 12

ENDS: Final = {
    "states": "more states than --states-max {states:,}",
    "time": "longer than --seconds {seconds:g}",
    "interrupted": "interrupted",
}


def describe_verdict(adopted: AdoptedMachine, verdict: AdoptionVerdict) -> str:
    """The verdict in lines: machine, bounds, counts, a shortest run that breaks it, what nothing took."""
    found = verdict.found
    lines = [describe_head(adopted)]
    lines += [f"  {key}: {value}" for key, value in list_bounds(adopted, verdict).items()]
    kinds = ", ".join(f"{count:,} {_KINDS[kind]}" for kind, count in found.kinds.items())
    lines.append(f"  {found.states:,} states, {found.steps:,} steps ({kinds}), depth {found.depth}; {found.cut:,} cut")
    lines += [f"  {count:,} times: {text}" for text, count in found.odd.items()]
    lines += [f"  {count:,} times: raised {name}, as --raises expects" for name, count in found.expected.items()]
    lines += [f"  not explored: {one}" for one in found.unexplored]
    broken = found.broken
    if broken is not None:
        run = f"a shortest run, {len(broken.legs)} step{'s' * (len(broken.legs) != 1)}"
        lines += [f"  VIOLATED {broken.name}: {broken.why}; {run}:", describe_run(adopted.stepper, broken)]
        lines += ["", "as a diagram (Mermaid):", "", draw_run(adopted.stepper, broken)]
        lines += ["as a test:", "", write_test(adopted, broken)]
    else:
        lines.append(f"  {_claim(adopted, verdict)}")
        labels = {label for label, _ in adopted.stepper.initial.parts}
        for one in adopted.properties:
            for name in one.find_fixed(labels, found.changed):
                text = f"no step that was taken changes {name}, which {one.name} is about"
                lines.append(f"  {text}; --call METHOD calls a method that does")
    lines += list_untaken(adopted, verdict)
    return "\n".join(lines).rstrip("\n")


_KINDS: Final = {"taken": "taken", "refused": "refused", "nothing": "without a row", "raised": "that raise"}


def describe_head(adopted: AdoptedMachine) -> str:
    """What was adopted, in a line."""
    subject = adopted.stepper.first
    kinds = ", ".join(dict.fromkeys(type(machine).__name__ for machine in subject.machines))
    models = ", ".join(subject.names[: len(subject.models)])
    rows = [one for one in adopted.stepper.rows if not one.automatic]
    return f"{adopted.place}: {models} on {kinds}, {len(rows)} transitions"


def list_bounds(adopted: AdoptedMachine, verdict: AdoptionVerdict) -> dict[str, str]:
    """What bounds the search, a line each."""
    request, stepper = adopted.request, adopted.stepper
    lines = {"holds": "; ".join(one.name for one in adopted.properties) or "(no --holds: only exceptions are errors)"}
    lines["within"] = "; ".join(one.name for one in adopted.within) or "(everything)"
    lines["calls"] = _calls(adopted)
    if request.ports:
        lines["ports"] = ", ".join(request.ports)
    blocked = ", ".join(sorted(stepper.sandbox.blocked_kinds))
    lines["blocked"] = blocked or "nothing"
    lines["at most"] = f"{verdict.states_max:,} states, {verdict.seconds_max:g} s"
    how = "under two hash seeds" if verdict.elsewhere else "in this process alone, so under one hash seed"
    lines["repeated"] = f"{verdict.repeated:,} of {verdict.found.steps:,} steps, on separate models, {how}"
    if any(hasattr(machine, "async_tasks") for machine in stepper.first.machines):
        lines["asynchronous"] = "one trigger at a time: two that run at once are not explored"
    if any(getattr(state, "timeout", 0) for state in _states(adopted)):
        lines["timers"] = "a timer that is set may fire at any moment, whatever its seconds"
    return lines


def _states(adopted: AdoptedMachine) -> list[Any]:
    from statemachines.adoption.live_machine import walk_states

    return [state for machine in adopted.stepper.first.machines for _, state in walk_states(machine)]


def _calls(adopted: AdoptedMachine) -> str:
    names = [name_action(adopted.stepper, one) for one in adopted.request.calls]
    rest = f", and {len(names) - CALLS_SHOWN} more" if len(names) > CALLS_SHOWN else ""
    return ", ".join(names[:CALLS_SHOWN]) + rest if names else "none"


def _claim(adopted: AdoptedMachine, verdict: AdoptionVerdict) -> str:
    names = ", ".join([*(one.name for one in adopted.properties), "no exception"])
    ended = verdict.found.ended
    if ended == "complete":
        if verdict.found.unexplored:
            return f"PARTIAL (triggers were not called): nothing broke so far: {names}"
        return f"checked within these bounds: {names}"
    why = ENDS[ended].format(states=verdict.states_max, seconds=verdict.seconds_max)
    return f"PARTIAL ({why}): nothing broke so far: {names}"


def list_untaken(adopted: AdoptedMachine, verdict: AdoptionVerdict) -> list[str]:
    """The transitions that nothing took, as lines."""
    found, stepper = verdict.found, adopted.stepper
    rows = [
        (number, row)
        for number, row in enumerate(stepper.rows)
        if number not in found.taken and (not row.automatic or adopted.request.automatic)
    ]
    if not rows:
        return ["transitions that nothing takes within these bounds: none"] if found.is_whole else []
    when = "within these bounds" if found.is_whole else "so far"
    lines = [f"transitions that nothing takes {when}:"]
    lines += [f"  row {number}: {row.label}{_reason(adopted, row)}" for number, row in rows[:ROWS_SHOWN]]
    if len(rows) > ROWS_SHOWN:
        lines.append(f"  and {len(rows) - ROWS_SHOWN} more")
    return lines


def _reason(adopted: AdoptedMachine, row: Any) -> str:
    from statemachines.adoption.live_machine import walk_states

    there = {name for name, _ in walk_states(adopted.stepper.first.machines[row.machine])}
    lost = [name for name in (row.source, row.dest) if name and name not in there]
    if lost:
        return f" (there is no state {lost[0]!r})"
    if any(one.trigger == row.trigger for one in adopted.unexplored):
        return " (not called)"
    return ""


def list_verdict(adopted: AdoptedMachine, verdict: AdoptionVerdict) -> dict[str, Any]:
    """The same for programs."""
    found, broken = verdict.found, verdict.found.broken
    made: dict[str, Any] = {
        "machine": adopted.place,
        "held": verdict.is_held,
        "complete": verdict.is_complete,
        "ended": found.ended,
        "bounds": list_bounds(adopted, verdict),
        "states": found.states,
        "steps": found.steps,
        "kinds": dict(found.kinds),
        "depth": found.depth,
        "cut": found.cut,
        "repeated": verdict.repeated,
        "not_explored": [str(one) for one in found.unexplored],
        "not_taken": [row.label for number, row in enumerate(adopted.stepper.rows) if number not in found.taken],
    }
    if broken is not None:
        made |= {
            "broken": broken.name,
            "why": broken.why,
            "run": [name_action(adopted.stepper, leg.action) for leg in broken.legs],
            "counterexample": describe_run(adopted.stepper, broken).splitlines(),
            "test": write_test(adopted, broken),
        }
    return made


__all__ = ["ModelAction", "describe_verdict", "list_bounds", "list_verdict"]
