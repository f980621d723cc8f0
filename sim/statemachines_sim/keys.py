"""Keys: the values of a scenario by their paths, as settings and swarms name them.

A key is looked for in what is the same for every protocol (`faults.crash`, `network.tail`), then in the section of its
protocol (`configuration.exclusive`, or in full `PROTOCOL.configuration.exclusive`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from statemachines_sim.scenario import Scenario, from_plain, to_plain

FIXED = ("name", "about", "protocol")
"""What says which scenario it is."""


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
