"""Override: some keys of a scenario set to other values, as the command line gives them: `KEY=VALUE`.

A key is a path in the scenario file, with or without the section of the protocol (`configuration.exclusive`,
`faults.crash`); a value is written as in TOML, or `null` where a key may have none.  What is not TOML is text.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines_sim.protocol import put, values
from statemachines_sim.scenario import Scenario, check_scenario


def override(scenario: Scenario, settings: Sequence[str]) -> Scenario:
    """The scenario with these settings, checked; raises `ConfigurationError` that names the setting and the rule."""
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator or not text.strip():
            raise ConfigurationError("--set", setting, "must be KEY=VALUE, such as configuration.exclusive=false")
        scenario = _set(scenario, key.strip(), value_of(text))
    return check_scenario(scenario)


def value_of(text: str) -> Any:
    """What the text means in TOML, or nothing (`null`, which TOML lacks); text that means nothing there stands for
    itself, unless it begins as a list, a table or a string."""
    if text.strip() == "null":
        return None
    try:
        return msgspec.toml.decode(f"value = {text}")["value"]
    except (msgspec.DecodeError, ValueError) as error:  # a number of more digits than Python reads, too
        if text.strip()[0] in "[{\"'":
            rule = f'is no value of TOML ({error}); write [1, 2], {{ a = 1 }} or "text"'
            raise ConfigurationError("--set", text, rule) from error
        return text


def list_keys(scenario: Scenario) -> list[str]:
    """Every key that can be set."""
    return list(values(scenario))


def _set(scenario: Scenario, key: str, value: Any) -> Scenario:
    known = list_keys(scenario)
    if key.removeprefix(f"{scenario.sim.name}.") not in known:
        close = get_close_matches(key, known, n=1, cutoff=0.5) or [
            one for one in known if one.rpartition(".")[2] == key.rpartition(".")[2]
        ]
        hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(known)}"
        raise ConfigurationError("--set", key, f"is no key of a scenario; {hint}")
    try:
        return put(scenario, {key: value})
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            f"--set {key}", value, f"is not possible: {str(error).partition(' - at')[0]}"
        ) from error
