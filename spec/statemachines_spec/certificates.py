"""Certificates: what an exploration came to, kept so that anybody can check it again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from statemachines.input_file import decode_input, read_input
from statemachines.whole_file import make_folder, write_whole
from statemachines_spec.explorer.explore import Result
from statemachines_spec.explorer.system import SYMMETRY, System
from statemachines_spec.protocol import chosen, is_alone

COMPARED = (
    "bounds", "states", "transitions", "cuts", "terminal", "levels", "edges", "entries", "locals", "messages", "always",
    "sometimes", "stand_for",
)  # fmt: skip
"""What a second exploration must agree on: bounds and deadline orders, counts, states by depth, the edge hash (whatever
the order of discovery), entries and local states by component, verdicts."""


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The system and what was found; see `Result` for the fields.  `protocol` is its name, or the `module:ATTRIBUTE`
    that it was given by; of a system that stands there by itself `size` and `variant` are what its function was given
    ("": nothing).  With symmetry the bounds say so, states are orbits, and `stand_for` counts the states that they
    stand for."""

    protocol: str
    system: str
    size: str
    variant: str
    bounds: dict[str, str]
    states: int
    transitions: int
    cuts: int
    terminal: int
    levels: tuple[int, ...]
    edges: str
    entries: dict[str, int]
    locals: dict[str, int]
    messages: int
    always: dict[str, bool]
    sometimes: dict[str, int]
    stand_for: int = 0


def write(folder: Path, protocol: str, size: str, variant: str, result: Result, *, in_full: bool = False) -> Path:
    """Keep `result` in `folder`; its file.  `in_full`: the symmetry of the system was not used."""
    fields = {field: getattr(result, field) for field in COMPARED}
    kept = Certificate(protocol=protocol, system=result.system, size=size, variant=variant, **fields)
    make_folder(folder, "--certify")
    name = "-".join(filter(None, (result.system.replace(" ", "-"), size, "in-full" if in_full else "")))
    path = folder / f"{name}.json"
    write_whole(path, msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
    return path


def read(path: Path) -> Certificate:
    """The certificate in a file; raises `ConfigurationError` for a file that is none."""
    data = read_input(path, "certificate")
    decode = msgspec.json.Decoder(Certificate).decode
    return decode_input(path, "certificate", "a certificate", data, decode)


def system_of(kept: Certificate) -> System:
    """The system that the certificate is about, without its symmetry where that was not used."""
    (made,) = chosen(kept.protocol, _named(kept), kept.size, kept.variant).systems
    return made if SYMMETRY in kept.bounds else made.in_full()


def _named(kept: Certificate) -> tuple[str, ...]:
    """The system by its name, unless it stands by itself at `module:ATTRIBUTE`."""
    return () if is_alone(kept.protocol) else (kept.system,)


def differences(kept: Certificate, result: Result) -> list[str]:
    """Where a second exploration does not agree, one line each."""
    lines = []
    for field in COMPARED:
        old, new = getattr(kept, field), getattr(result, field)
        if old != new:
            lines.append(f"{field}: the certificate says {old}, this exploration {new}")
    return lines
