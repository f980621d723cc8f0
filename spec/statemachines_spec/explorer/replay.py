"""Replay: the events of a path fed to fresh nodes of the shipped machines, without tables, walker or glue.

Every party of the path becomes a `kernel.Node`; it takes the events that the path says, and must have the record that
the path says after each.  What remains of a local state (modes, clocks that have passed) is the path's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import GaplessError, Node
from statemachines_spec.explorer.actor import SeenStep
from statemachines_spec.explorer.explore import ExploredPath
from statemachines_spec.explorer.invariants import RecordCheck, machine_invariants
from statemachines_spec.explorer.party import InternedParty
from statemachines_spec.explorer.property import NO_ERROR, Always
from statemachines_spec.explorer.system import System


class ReplayedNodes(msgspec.Struct, frozen=True):
    """The nodes at the end, by id; how many events they took; the property that their records break ("" = none)."""

    nodes: dict[str, Node[Any]]
    events: int
    broken: str


def replay(system: System, path: ExploredPath) -> ReplayedNodes:
    """Feed the events of `path` to fresh nodes.  Raises `GaplessError` where a node comes to another record."""
    nodes: dict[str, Node[Any]] = {}
    known: dict[str, Any] = {}
    declared: list[str] = []
    events = 0
    for number, leg in enumerate(path.legs, 1):
        for turn in leg.turns:
            for step in turn.steps:
                if step.fsm is None:
                    continue
                node = nodes.get(step.party)
                if node is None or node.stopped:  # one that has stopped began another life
                    node = nodes[step.party] = Node(step.fsm, step.before, name=step.party, now_ns=step.now_ns)
                elif known[step.party] != step.before:
                    # The explorer renumbers what grows; the node follows, or it would count on for ever.
                    node.record = step.before
                events += 1
                if step.after is None:
                    return ReplayedNodes(nodes, events, _raised(node, step))
                node.take(step.fed, step.now_ns)
                if node.record != step.after:
                    raise GaplessError(f"step {number}: {step.party} came to {node.record!r}, not {step.after!r}")
                known[step.party] = step.after
                declared += _broken_by_record(node)
    return ReplayedNodes(nodes, events, _broken(system, path, nodes, declared))


def _raised(node: Node[Any], step: SeenStep) -> str:
    try:
        node.take(step.fed, step.now_ns)
    except Exception:
        return NO_ERROR
    return ""


def _broken(system: System, path: ExploredPath, nodes: dict[str, Node[Any]], declared: list[str]) -> str:
    """What breaks with the nodes' own records in the local states: what the path says, where that is among it."""
    found = [*_broken_by_state(system, path, nodes), *_broken_by_step(system, path, nodes), *declared]
    return path.broken if path.broken in found else "".join(found[:1])


def _broken_by_state(system: System, path: ExploredPath, nodes: dict[str, Node[Any]]) -> Iterator[str]:
    last = {name: _with_record(local, nodes) for name, local in path.last.items()}
    for one in system.over_states:
        if not isinstance(one, Always) or (one.quiet and not path.quiet):
            continue
        if not one.holds(*(view.of(last[view.actor]) for view in one.views)):
            yield one.name


def _broken_by_step(system: System, path: ExploredPath, nodes: dict[str, Node[Any]]) -> Iterator[str]:
    for turn in path.legs[-1].turns if path.legs else ():
        after = _with_record(turn.local_after, nodes)
        for step in system.over_steps:
            if not step.holds(turn.actor, turn.local_before, turn.envelope.event, after):
                yield step.name


def _broken_by_record(node: Node[Any]) -> list[str]:
    """The invariant that a node's own record breaks, or one of its child machines' records."""
    names = [one.name for one in machine_invariants((node.fsm,))]
    place = RecordCheck((node.fsm,), names).broken_in(node.record)
    return [] if place is None else [names[place]]


def _with_record(local: Any, nodes: dict[str, Node[Any]]) -> Any:
    party = getattr(local, "party", None)
    name = getattr(local, "id", None) or getattr(getattr(party, "record", None), "id", "")
    if party is None or name not in nodes:
        return local
    record = nodes[name].record
    if isinstance(party, InternedParty):
        return replace(local, parts=local.parts.put(InternedParty(replace(party.party, record=record))))
    return replace(local, party=replace(party, record=record))
