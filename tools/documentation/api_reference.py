"""Reference of the public interfaces: what each package gives under its own name; mkdocstrings writes the rest."""

from __future__ import annotations

import ast
import importlib.util
from importlib import import_module
from pathlib import Path

PACKAGES = {
    "shared_subscriptions": ("Consumer groups", "statemachines.drivers.shared_subscriptions"),
    "persistent_sessions": ("Persistent sessions", "statemachines.drivers.persistent_sessions"),
    "missed_samples": ("Samples over zenoh", "statemachines.drivers.missed_samples"),
    "zenoh": ("Samples over zenoh without a loop", "gapless.zenoh"),
    "sequence_windows": ("Sequence windows", "statemachines.drivers.sequence_windows"),
    "cursor_recovery": ("A queue in shared memory", "statemachines.drivers.cursor_recovery"),
    "drivers": ("Credentials and memory network", "statemachines.drivers"),
    "kernel": ("Kernel", "statemachines.kernel"),
    "mqtt_codec": ("MQTT codec", "statemachines.mqtt_codec"),
    "adoption": ("Adoption of transitions machines", "statemachines.adoption"),
    "testing": ("Testing", "statemachines.testing"),
    "simulator": ("Simulator", "statemachines_sim"),
    "explorer": ("Explorer", "statemachines_spec"),
}
"""Page -> its title, and the package whose names it lists."""


def list_public_names(package: str) -> list[str]:
    """Full name of everything that a package imports under its own name (`from x import y as y`), in its order."""
    if package.startswith("gapless."):
        return [f"{package}.{name}" for name in import_module(package).__all__]
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return [
        f"{one.module}.{alias.name}"
        for one in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
        if isinstance(one, ast.ImportFrom)
        for alias in one.names
        if alias.asname == alias.name and is_ours(str(one.module), alias.name)
    ]


def is_ours(module: str, name: str) -> bool:
    """Whether the name is declared in a package of ours, and not in a library."""
    return str(getattr(getattr(import_module(module), name), "__module__", module)).startswith("statemachines")


def write_page(page: str) -> str:
    """The page of one package: a directive for each name."""
    title, package = PACKAGES[page]
    names = list_public_names(package)
    example = f"    from {package} import {names[0].rpartition('.')[2]}\n"
    return f"# {title}\n\n{example}\n" + "\n".join(f"::: {name}\n" for name in names)
