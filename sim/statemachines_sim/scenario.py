"""Scenario: what a simulated run is made of, read from a TOML file.

Some keys are the same for every protocol; one section, named after the protocol, is of a type of its own:

    name = "storm"
    protocol = "lock_service"        # or "mine:PROTOCOL"

    [lock_service]
    holders = 4

    [faults]
    crash = [2, 3]

Times carry their unit in the name (`_ms`, `_s`).  A range `[low, high]` is drawn from the seed.  Everything that is not
said has the default below; an unknown key, a value of another type or out of its bounds is a `ConfigurationError` that
names the file, the key and the rule.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec

from statemachines import registry
from statemachines.input_file import decode_input, read_input
from statemachines.kernel import ConfigurationError
from statemachines_sim.keys import from_plain as from_plain
from statemachines_sim.keys import to_plain as to_plain
from statemachines_sim.protocol import Scenario as Scenario
from statemachines_sim.protocol import sim_of as sim_of
from statemachines_sim.run_settings import Net as Net
from statemachines_sim.run_settings import Phases as Phases
from statemachines_sim.run_settings import Range as Range
from statemachines_sim.run_settings import Swarm as Swarm
from statemachines_sim.run_settings import check_bounds as check_bounds
from statemachines_sim.run_settings import check_ranges as check_ranges
from statemachines_sim.run_settings import check_times as check_times
from statemachines_sim.scenario_check import check_scenario as check_scenario

SEED_MAX: Final = 2**63 - 1
"""Seeds stand in a trace as whole numbers of 64 bits."""


def read(path: Path) -> Scenario:
    """The scenario in a file."""
    data = read_input(path, "scenario")
    plain = decode_input(path, "scenario", "a scenario", data, msgspec.toml.decode)
    try:
        return check_scenario(from_plain(plain))
    except msgspec.MsgspecError as error:
        raise ConfigurationError("scenario", str(path), f"is not a scenario: {error}") from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{path.name}: {error.key}", error.value, error.rule) from error


def list_shipped() -> dict[str, Path]:
    """`protocol/name` -> file of the scenarios that come with all protocols that can be loaded."""
    found: dict[str, Path] = {}
    for one in registry.protocols():
        if "sim" in one.areas:
            found |= {f"{one.name}/{name}": path for name, path in list_shipped_with(one.name).items()}
    return found


def list_shipped_with(protocol: str) -> dict[str, Path]:
    """Name -> file of the scenarios that come with a protocol: in its package, or beside it in a checkout."""
    place = sim_of(protocol).scenarios
    if not place:
        return {}
    package, _, path = place.partition(":")
    inside = Path(str(files(package)))
    found: dict[str, Path] = {}
    for folder in (inside.parent / path, inside / path):
        found |= {one.stem: one for one in sorted(folder.glob("*.toml"))}
    return dict(sorted(found.items()))


def find_scenario(name: str) -> Scenario:
    """A shipped scenario by its name (`storm`, `PROTOCOL/storm`), or the one in a file.

    Raises `ConfigurationError` for an unknown name, and for a short one that several protocols have.
    """
    if name == "-" or name.endswith(".toml") or _is_input(name):
        return read(Path(name))
    known = list_shipped()
    if name in known:
        return read(known[name])
    found = [one for one in known if one.partition("/")[2] == name]
    if len(found) > 1:
        raise ConfigurationError("scenario", name, f"several protocols have one: say {' or '.join(found)}")
    if found:
        return read(known[found[0]])
    names = known if "/" in name else tuple(one.partition("/")[2] for one in known)
    lost = "".join(f"; protocol {one} does not load" for one in registry.find_broken())
    raise registry.make_unknown_error(
        "scenario", name, names, f"`gapless simulate list` lists them; or give a .toml file{lost}"
    )


def _is_input(name: str) -> bool:
    """Whether there is a file, a pipe or a device of this name."""
    try:
        return Path(name).exists() and not Path(name).is_dir()
    except (OSError, ValueError):  # longer than a name may be, or with a null character
        return False


def check_seeds(first: int, count: int = 1) -> range:
    """So many seeds from `first` on; raises `ConfigurationError` for one that no trace can hold."""
    if not 0 <= first <= SEED_MAX - count + 1:
        raise ConfigurationError("seed", first, f"must lie between 0 and {SEED_MAX - count + 1}")
    return range(first, first + count)
