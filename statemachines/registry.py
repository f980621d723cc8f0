"""Registry: which protocols there are, and how what they name by `module:ATTRIBUTE` is loaded.

A protocol is known by an entry point of the group `gapless.protocols`, ours like everybody's, or by `register`; where a
name of a protocol, machine, system or scenario is wanted, `module:ATTRIBUTE` serves too.  Nothing is imported before it
is asked for, and an entry point that does not load is an error only of what needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, TypeVar

from statemachines.kernel import ConfigurationError, Protocol
from statemachines.kernel.protocol import AREAS, GROUP

T = TypeVar("T")

LISTED_NAMES: Final = 60
"""Of more names than this an error shows only the nearest."""

NEAREST_NAMES: Final = 8

_REGISTERED: Final[dict[str, Protocol]] = {}


def register(protocol: Protocol) -> Protocol:
    """Make a protocol known to this process, and give it back; the same value again is the same protocol.

    Raises `ConfigurationError` where another protocol has its name.
    """
    known = _REGISTERED.get(protocol.name)
    if known is None and protocol.name in _entries():
        known = _loaded(protocol.name)
    if known is not None and known != protocol:
        rule = "is registered already with other values; give one of the two another name"
        raise ConfigurationError("protocol", protocol.name, rule)
    _REGISTERED[protocol.name] = protocol
    return protocol


def names() -> tuple[str, ...]:
    """The names of all protocols, in order; none of them is loaded."""
    return tuple(sorted({*_REGISTERED, *_entries()}))


def protocol(name: str) -> Protocol:
    """The protocol called `name`, or the one that stands at `module:ATTRIBUTE` (registered from then on).

    Raises `ConfigurationError` for an unknown name, with those there are, and for an entry point that does not load.
    """
    if ":" in name:
        return register(load(name, Protocol, "protocol"))
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name in _entries():
        return _loaded(name)
    raise make_unknown_error("protocol", name, names(), "or give module:ATTRIBUTE")


def protocols() -> tuple[Protocol, ...]:
    """All protocols that can be loaded, by name; `broken` says which cannot."""
    refused = find_broken()
    return tuple(protocol(name) for name in names() if name not in refused)


def find_broken() -> dict[str, ConfigurationError]:
    """The protocols whose entry points do not load, and why."""
    found = {}
    for name in names():
        try:
            protocol(name)
        except ConfigurationError as error:
            found[name] = error
        except ImportError as error:
            found[name] = ConfigurationError("protocol", name, f"needs {error.name!r}, which is not installed")
    return found


def load_area(name: str, of: str) -> Any:
    """What the protocol `name` has for the area `of` (one of `AREAS`).

    Raises `ConfigurationError` where it has nothing there, naming the protocols that do.
    """
    if of not in AREAS:
        raise make_unknown_error("area", of, AREAS)
    one = protocol(name)
    if of not in one.areas:
        having = [other.name for other in protocols() if of in other.areas]
        rule = f"has no part for {of!r}: its registration names none; those that do: {', '.join(having) or 'none'}"
        raise ConfigurationError("protocol", one.name, rule)
    return load(one.areas[of], object, f"{one.name}, {of}")


def check_importable(one: Protocol, mend: str) -> None:
    """Another process can import all that the protocol names; raises `ConfigurationError` for what stands in `__main__`
    (a notebook, `python -c`); `mend`: what else can be done."""
    for what, place in (*one.machines.items(), *one.areas.items()):
        if place.startswith("__main__:"):
            rule = f"{what} stands in __main__, which no other process can import; put it into a module, or {mend}"
            raise ConfigurationError("protocol", one.name, rule)


def load(place: str, kind: type[T], what: str) -> T:
    """The value at `module:ATTRIBUTE`; `what` it is, for errors.

    The working directory is looked into as well, as `python -m` does.  Raises `ConfigurationError` for a module that
    does not import, an attribute that is not there, or a value that is no `kind`.
    """
    module, _, attribute = place.partition(":")
    if not module or not attribute or "/" in place or place.startswith("."):
        raise ConfigurationError(what, place, "must be module:ATTRIBUTE")
    _look_here()
    try:
        found = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise  # something that the module needs, an extra perhaps: the command says which
        where = f"leave out .py: {module[:-3]}:{attribute}" if module.endswith(".py") else "is it installed, or here?"
        raise ConfigurationError(what, place, f"there is no module {error.name!r}; {where}") from error
    except AttributeError as error:
        if getattr(error, "name", None) != attribute:
            raise ConfigurationError(what, place, f"does not import: {error}") from error
        close = get_close_matches(attribute, dir(sys.modules[module]), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigurationError(what, place, f"the module has no {attribute!r}{hint}") from error
    except Exception as error:  # whatever somebody's module does: it is not ours to fail for
        raise ConfigurationError(what, place, f"does not import: {type(error).__name__}: {error}") from error
    if not isinstance(found, kind):
        raise ConfigurationError(what, place, f"is no {kind.__name__}, but a {type(found).__name__}")
    return found


def make_unknown_error(kind: str, name: str, known: Iterable[str], also: str = "") -> ConfigurationError:
    """The error for a name that is not there: what was meant perhaps, and what there is."""
    known = tuple(dict.fromkeys(known))
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    end = f"; {also}" if also else ""
    listed = f"there are: {', '.join(known)}"
    if len(known) > LISTED_NAMES:
        nearest = get_close_matches(name, known, n=NEAREST_NAMES, cutoff=0.0)
        listed = f"there are {len(known)}, such as {', '.join(nearest)}"
    return ConfigurationError(kind, name, f"unknown; {hint}{listed}{end}")


@cache
def _entries() -> dict[str, tuple[EntryPoint, ...]]:
    """Name -> its entry points; two distributions may give the same name."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for one in entry_points(group=GROUP):
        found[one.name] = (*found.get(one.name, ()), one)
    return found


@cache
def _loaded(name: str) -> Protocol:
    values = {one.value: one for one in sorted(_entries()[name], key=lambda one: one.value)}
    loaded = [load(value, Protocol, f"protocol {name!r}, by its entry point,") for value in values]
    if any(one != loaded[0] for one in loaded):
        of = " and ".join(f"{one.dist.name if one.dist else '?'} ({value})" for value, one in values.items())
        raise ConfigurationError("protocol", name, f"is registered with different values, by {of}; remove one of them")
    if loaded[0].name != name:
        rule = f"its entry point is called so, and the protocol {loaded[0].name!r}: both must be the same"
        raise ConfigurationError("protocol", name, rule)
    return loaded[0]


def _look_here() -> None:
    """A console script does not look into the working directory; what a user names there is to be found."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
