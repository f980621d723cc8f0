"""Origin: how any process makes the explored system of a script again.

What stands there is named by a file, which somebody else may have written: a `System` and a `CheckProtocol` are taken
as they are, and of functions only one that says that it makes a system is called.
"""

from __future__ import annotations

from typing import Any, get_type_hints

from statemachines import registry
from statemachines.kernel import ConfigurationError
from statemachines_spec.explorer.system import System
from statemachines_spec.protocol import CheckProtocol, system_at
from statemachines_spec.script.script import Origin, Script

MAKER = f"{system_at.__module__}:{system_at.__name__}"
"""The explorer's own function, whose argument `place` is the place that is meant."""


def system_of(script: Script, variant: str = "") -> System:
    """The system that the script is a run of; `variant`: with these rules instead.

    Raises `ConfigurationError` where it cannot be made again.
    """
    if script.origin is None:
        rule = "the script does not say how its system is made; make it by the name of a function, `module:FUNCTION`"
        raise ConfigurationError("script", script.system, rule)
    place, arguments = _split_origin(script.origin)
    _check(place)
    if variant:
        arguments["variant"] = variant
    return system_at(place, **arguments).check()


def _split_origin(origin: Origin) -> tuple[str, dict[str, Any]]:
    arguments: dict[str, Any] = dict(origin.arguments)
    return (str(arguments.pop("place", "")), arguments) if origin.place == MAKER else (origin.place, arguments)


def _check(place: str) -> None:
    found = registry.load(place, object, "script, its system")
    if isinstance(found, System | CheckProtocol):
        return
    try:
        makes = get_type_hints(found).get("return") if callable(found) else None
    except Exception:  # names that only a type checker sees
        makes = getattr(found, "__annotations__", {}).get("return")
    if makes is not System and makes != "System":
        rule = "is called by a script only if it says that it makes a system: def ...(...) -> System"
        raise ConfigurationError("script, its system", place, rule)
