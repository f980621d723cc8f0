"""What a protocol gives the drivers: the roles that `gapless node` can run.

A registration names the value: `areas={"drivers": "lock_service.nodes:DRIVERS"}`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from statemachines import registry
from statemachines.kernel import ConfigurationError
from statemachines.registry import make_unknown_error

Command = Callable[..., Any]
"""A command as typer takes it: its parameters are the options, its documentation is the help."""


class DriverProtocol(msgspec.Struct, frozen=True):
    """`roles`: name -> the command that runs such a node until a signal, or `module:ATTRIBUTE` of it (loaded when it is
    run or listed); `simple_role` makes one."""

    roles: dict[str, str | Command]


def names() -> tuple[str, ...]:
    """Every role of every protocol that can be loaded: its short name, or where several have one `protocol/role`."""
    full = [f"{protocol}/{short}" for protocol, one in _loaded()[0].items() for short in one.roles]
    shorts = [name.partition("/")[2] for name in full]
    return tuple(short if shorts.count(short) == 1 else name for name, short in zip(full, shorts, strict=True))


def command(name: str) -> Command:
    """The command of a role: `protocol/role`, its short name where one protocol has it, `module:ATTRIBUTE/role`.

    Raises `ConfigurationError` for an unknown role, and for a short name that several have, naming them.
    """
    protocol, _, short = name.rpartition("/")
    if protocol:
        one = registry.protocol(protocol).name
        return _command(one, short, _drivers(one))
    found, lost = _loaded()
    having = [protocol for protocol, one in found.items() if name in one.roles]
    if len(having) > 1:
        several = " or ".join(f"{protocol}/{name}" for protocol in having)
        raise ConfigurationError("role", name, f"several protocols have one: say {several}")
    if not having:
        errors = "".join(f"; {protocol} does not load: {error}" for protocol, error in lost.items())
        raise make_unknown_error("role", name, names(), f"or protocol/role{errors}")
    return _command(having[0], name, found[having[0]])


def _drivers(protocol: str) -> DriverProtocol:
    try:
        found = registry.load_area(protocol, "drivers")
    except ImportError as error:
        rule = f"its drivers need {error.name!r}, which is missing; pip install 'gapless[all]' brings what ours need"
        raise ConfigurationError("protocol", protocol, rule) from error
    if not isinstance(found, DriverProtocol):
        raise ConfigurationError(f"{protocol}, drivers", type(found).__name__, "must be a DriverProtocol")
    return found


def _loaded() -> tuple[dict[str, DriverProtocol], dict[str, ConfigurationError]]:
    """The drivers of every protocol that has some, and why those of others cannot be had."""
    found: dict[str, DriverProtocol] = {}
    lost = dict(registry.find_broken())
    for one in registry.protocols():
        if "drivers" in one.areas:
            try:
                found[one.name] = _drivers(one.name)
            except ConfigurationError as error:
                lost[one.name] = error
    return found, lost


def _command(protocol: str, role: str, drivers: DriverProtocol) -> Command:
    if role not in drivers.roles:
        raise make_unknown_error(f"role of {protocol}", role, drivers.roles)
    command = drivers.roles[role]
    if not isinstance(command, str):
        return command
    found: Command = registry.load(command, object, f"{protocol}/{role}")  # type: ignore[assignment]
    return found
