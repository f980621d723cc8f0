"""Certificates: what an exploration came to, kept so that anybody can check it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.input_file import decode_input, read_input
from statemachines.whole_file import make_folder, write_whole
from statemachines_spec.explorer.explore import Result
from statemachines_spec.explorer.system import SYMMETRY, System
from statemachines_spec.fingerprint import fingerprint, modules_of
from statemachines_spec.protocol import SystemSelection, choose_systems, is_alone

COMPARED = (
    "bounds", "states", "transitions", "cuts", "terminal", "levels", "edges", "entries", "locals", "messages", "always",
    "sometimes", "stand_for",
)  # fmt: skip
"""What a second exploration must agree on: bounds and deadline orders, counts, states by depth, the edge hash (whatever
the order of discovery), entries and local states by component, verdicts."""


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The system and what was found; see `Result` for the fields.  `protocol` is its name, or the `module:ATTRIBUTE`
    that it was given by; of a system that stands there by itself `size` and `variant` are what its function was given
    ("": nothing).  `fingerprint`: of all code that it rests on (`fingerprint.py`; "": it was never taken, and the
    certificate is stale).  With symmetry the bounds say so, states are orbits, and `stand_for` counts the states that
    they stand for."""

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
    fingerprint: str = ""


def write(folder: Path, protocol: str, size: str, variant: str, result: Result, *, in_full: bool = False) -> Path:
    """Keep `result` in `folder`; its file.  `in_full`: the symmetry of the system was not used."""
    fields = {field: getattr(result, field) for field in COMPARED}
    kept = Certificate(protocol=protocol, system=result.system, size=size, variant=variant, **fields)
    kept = replace(kept, fingerprint=fingerprint_now(kept))
    make_folder(folder, "--certify")
    path = folder / file_name(result.system, size, in_full=in_full)
    write_whole(path, _lay_out(kept))
    return path


def _lay_out(kept: Certificate) -> bytes:
    """The certificate as JSON with a field a line; of `bounds`, which are sentences, one a line."""
    parts = msgspec.json.decode(msgspec.json.encode(kept), type=dict[str, msgspec.Raw])
    lines = []
    for field, part in parts.items():
        text = msgspec.json.format(part, indent=1 if field == "bounds" else 0).replace(b"\n", b"\n ")
        lines.append(b' "%s": %s' % (field.encode(), text))
    return b"{\n" + b",\n".join(lines) + b"\n}\n"


def file_name(system: str, size: str, *, in_full: bool = False) -> str:
    """What the file of a certificate is called."""
    return "-".join(filter(None, (system.replace(" ", "-"), size, "in-full" if in_full else ""))) + ".json"


def read(path: Path) -> Certificate:
    """The certificate in a file; raises `ConfigurationError` for a file that is none."""
    data = read_input(path, "certificate")
    decode = msgspec.json.Decoder(Certificate).decode
    return decode_input(path, "certificate", "a certificate", data, decode)


def system_of(kept: Certificate) -> System:
    """The system that the certificate is about, without its symmetry where that was not used."""
    return find_system(
        kept.protocol, *_name_system(kept), size=kept.size, variant=kept.variant, in_full=not _folds(kept)
    )


def find_system(protocol: str, *names: str, size: str, variant: str, in_full: bool = False) -> System:
    """The system of these names; `in_full`: without its symmetry."""
    (made,) = choose_systems(protocol, names, size, variant).systems
    return made.in_full() if in_full else made


def _folds(kept: Certificate) -> bool:
    return SYMMETRY in kept.bounds


def fingerprint_now(kept: Certificate) -> str:
    """The fingerprint that the certificate would have if it were written now."""
    picked = choose_systems(kept.protocol, _name_system(kept), kept.size, kept.variant)
    (made,) = picked.systems
    bounds = (made if _folds(kept) else made.in_full()).describe_bounds()
    names = {"system": kept.system, "size": kept.size, "variant": kept.variant}
    return fingerprint(_module_of(picked, made), {**bounds, **names})


def _module_of(picked: SystemSelection, made: System) -> str:
    """The module whose code makes the system: that of the protocol's `build`, unless the system comes from a module
    which that one does not import."""
    place = "" if made.origin is None else made.origin[0].partition(":")[0]
    is_apart = place not in ("", SystemSelection.__module__) and place not in modules_of(picked.module)
    return place if is_apart else picked.module


def is_stale(kept: Certificate) -> bool:
    """Whether the code that it rests on has changed since it was written."""
    return kept.fingerprint != fingerprint_now(kept)


def _name_system(kept: Certificate) -> tuple[str, ...]:
    """The system by its name, unless it stands by itself at `module:ATTRIBUTE`."""
    return () if is_alone(kept.protocol) else (kept.system,)


def list_differences(kept: Certificate, result: Result) -> list[str]:
    """Where a second exploration does not agree, one line each."""
    lines = []
    for field in COMPARED:
        old, new = getattr(kept, field), getattr(result, field)
        if old == new:
            continue
        what = field
        if isinstance(old, dict):
            names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
            what, old, new = f"{field} of {', '.join(names)}", _only(names, old), _only(names, new)
        lines.append(f"{what}: the certificate says {old}, this exploration {new}")
    return lines


def _only(names: list[str], some: dict[str, Any]) -> str:
    """What it says of these, in their order."""
    return ", ".join(str(some.get(name, "nothing")) for name in names)
