"""Run rules: the tables and first states by which a scripted run is judged.

A script names the explored system that it is a run of, and a variant of its rules.  The system comes from the
registration of a protocol that is installed here.  A trace only names it, so a trace cannot bring rules of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any

import msgspec
import numpy as np

from statemachines import registry
from statemachines.kernel import ConfigurationError
from statemachines_reports.columns import Segment
from statemachines_reports.lookup import Lookup
from statemachines_reports.protocol import Parameters
from statemachines_spec.explorer.fsm_actor import FsmActor
from statemachines_spec.explorer.system import System
from statemachines_spec.protocol import of_protocol

Name = Annotated[str, msgspec.Meta(max_length=200)]


class SystemName(msgspec.Struct, frozen=True):
    """A system of a registered protocol; "" in place of a size or a variant: the first one."""

    protocol: Name
    name: Name
    size: Name = ""
    variant: Name = ""
    without: tuple[Name, ...] = ()


class _Origin(msgspec.Struct):
    arguments: dict[str, Any] = {}


class _Script(msgspec.Struct):
    protocol: Name
    system: Name
    origin: _Origin | None = None


class _Scripted(msgspec.Struct):
    script: _Script
    variant: Name = ""


def find_rules(parameters: Parameters) -> SystemName | None:
    """The system that the run with these parameters follows a script of; None: it follows none, or nobody here has
    its system."""
    if "script" not in parameters:
        return None
    try:
        run = msgspec.convert(parameters, _Scripted, strict=True)
        arguments = run.script.origin.arguments if run.script.origin else {}
        given: dict[str, Any] = {name: arguments[name] for name in ("size", "variant", "without") if name in arguments}
        given |= {"variant": run.variant} if run.variant else {}
        said = msgspec.convert({"protocol": run.script.protocol, "name": run.script.system, **given}, SystemName)
    except msgspec.ValidationError:
        return None
    return said if make_system(said) is not None else None


@lru_cache(maxsize=64)
def make_system(said: SystemName) -> System | None:
    """The system called so; None: there is none."""
    if said.protocol not in registry.names():
        return None
    try:
        return of_protocol(said.protocol).system(said.name, said.size, said.variant, said.without)
    except ConfigurationError:
        return None


def is_by_known_rules(parameters: Parameters) -> bool:
    """Whether every table of a run with these parameters is known here."""
    return not parameters.get("other_rules") or find_rules(parameters) is not None


def split_by_rules(segment: Segment) -> Iterator[Segment]:
    """The segment, its scripted runs apart, each with the lookup of its rules."""
    lookups = {run: lookup_of_run(segment, run) for run, _ in segment.columns.runs()}
    scripted = {run: lookup for run, lookup in lookups.items() if lookup is not segment.lookup}
    if not scripted:
        yield segment
        return
    run = segment.columns["run"]
    shipped = np.flatnonzero(~np.isin(run, list(scripted)))
    if len(shipped):
        yield Segment(segment.columns.select(shipped), segment.lookup, segment.parameters)
    for number, lookup in scripted.items():
        rows = np.flatnonzero(run == number)
        yield Segment(segment.columns.select(rows), lookup, segment.parameters)


def lookup_of_run(segment: Segment, run: int) -> Lookup:
    """The tables by which the run is judged."""
    said = find_rules(segment.parameters(run))
    return segment.lookup if said is None else _lookup_of(segment.lookup, said)


@lru_cache(maxsize=64)
def _lookup_of(shipped: Lookup, said: SystemName) -> Lookup:
    """The shipped tables, with those of the machines that run in the system in their place.  A machine may also begin
    where the system has it begin."""
    system = make_system(said)
    if system is None:
        return shipped
    lookup = Lookup((*shipped.family, *system.machines), shipped.missing)
    for actor in system.actors:
        if isinstance(actor, FsmActor):
            for life in range(1, actor.lives + 1):
                lookup.add_begin(actor.fsm, actor.fresh(life).status)
    return lookup
