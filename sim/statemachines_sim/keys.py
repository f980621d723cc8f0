"""Keys: the values of a scenario by their paths, as settings and swarms name them.

A key is looked for in what is the same for every protocol (`faults.crash`, `network.tail`), then in the section of its
protocol (`configuration.exclusive`, or in full `PROTOCOL.configuration.exclusive`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from statemachines import registry
from statemachines.input_file import convert_input
from statemachines.kernel import ConfigurationError
from statemachines_sim.protocol import Scenario, sim_of
from statemachines_sim.run_settings import RunSettings

FIXED = ("name", "about", "protocol")
"""What says which scenario it is."""


class Common(RunSettings, frozen=True, kw_only=True):
    """What a scenario file says of every protocol, as it stands there: the protocol by its name."""

    protocol: str


KEYS: Final = tuple(key for key in RunSettings.__struct_fields__ if key != "own")


def from_plain(plain: dict[str, Any]) -> Scenario:
    """The scenario of what a file says; raises `ConfigurationError`, or `msgspec.ValidationError` for a wrong type."""
    common = convert_input({key: value for key, value in plain.items() if key in KEYS}, Common)
    sim = sim_of(common.protocol)
    for key in plain:
        if key in KEYS or key == sim.name:
            continue
        if key in registry.names():
            rule = f"is a section of another protocol: the scenario says protocol = {common.protocol!r}"
            raise ConfigurationError(key, "...", rule)
        raise registry.make_unknown_error("key", key, (*KEYS, sim.name), f"keys of the protocol stand in [{sim.name}]")
    own = convert_input(plain.get(sim.name, {}), sim.section)
    return Scenario(own=own, **{key: getattr(common, key) for key in KEYS})


def to_plain(scenario: Scenario) -> dict[str, Any]:
    """What a file would say; `from_plain` is its inverse."""
    sim = scenario.sim
    plain: dict[str, Any] = {
        key: msgspec.to_builtins(getattr(scenario, key)) for key in KEYS if key not in ("protocol", "swarm")
    }
    plain["protocol"] = scenario.protocol if isinstance(scenario.protocol, str) else sim.name
    if scenario.swarm is not None:
        plain["swarm"] = msgspec.to_builtins(scenario.swarm)
    plain[sim.name] = msgspec.to_builtins(scenario.own)
    return plain


def values(scenario: Scenario) -> dict[str, Any]:
    """Every key and its value."""
    plain = to_plain(scenario)
    own = plain.pop(scenario.sim.name)
    plain["faults"] = {kind: [0, 0] for kind in scenario.kinds} | plain["faults"]
    found = dict(_leaves(own)) | dict(_leaves(plain))
    return {key: value for key, value in found.items() if key not in FIXED}


def put(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    """The scenario with these values; every key is known.  Raises `msgspec.ValidationError` for one of a wrong type."""
    plain = to_plain(scenario)
    name = scenario.sim.name
    own = plain[name]
    for key, value in changes.items():
        path, last = _split(key.removeprefix(f"{name}."))
        common = path[0] in plain if path else last in plain
        section = plain if common and not key.startswith(f"{name}.") else own
        for one in path:
            section = section[one]
        section[last] = value
    changed = from_plain(plain)
    return msgspec.structs.replace(changed, protocol=scenario.protocol)


def settings(scenario: Scenario) -> dict[str, Any]:
    """The whole scenario as judges of a trace read it: the protocol's section beside the common keys."""
    plain = to_plain(scenario)
    own: dict[str, Any] = plain.pop(scenario.sim.name)
    return own | plain


def _split(key: str) -> tuple[list[str], str]:
    *path, last = key.split(".")
    return path, last


def _leaves(section: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{path}{name}.")
        elif not isinstance(value, dict):
            yield f"{path}{name}", value
