"""Code archive: our packages, and those of the protocols that are judged, as one zip that executors import from."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from hashlib import sha256
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from statemachines.kernel import ConfigurationError, Protocol

PACKAGES: Final = ("statemachines", "statemachines_spec", "statemachines_sim", "statemachines_reports")
"""Of the distribution, those that run in tasks."""

LIBRARIES: Final = ("numpy", "pyarrow", "msgspec", "immutables", "transitions", "markupsafe", "simpy")
"""What an executor must have besides: these have compiled parts, or are installed by every user."""

EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The date of all files: the same code is the same zip."""


def write_code(directory: Path, protocols: Iterable[Protocol]) -> Path:
    """The zip, named after its content; raises `ConfigurationError` for code that is not in files of Python."""
    names = dict.fromkeys([*PACKAGES, *(name for one in protocols for name in list_packages(one))])
    unnamed = directory / "code.zip"
    with zipfile.ZipFile(unnamed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            for path, place in list_files(name):
                archive.writestr(zipfile.ZipInfo(place, EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED, 1)
        for file, text in list_metadata():
            archive.writestr(zipfile.ZipInfo(file, EPOCH), text)
    return unnamed.rename(directory / f"gapless-{sha256(unnamed.read_bytes()).hexdigest()[:12]}.zip")


def list_packages(protocol: Protocol) -> list[str]:
    """The top-level packages that the registration names."""
    places = [*protocol.machines.values(), *protocol.areas.values()]
    return list(dict.fromkeys(place.partition(":")[0].partition(".")[0] for place in places))


def list_files(name: str) -> Iterator[tuple[Path, str]]:
    """The files of a package or module, and where they stand in the archive."""
    spec = find_spec(name)
    if spec is None or (spec.submodule_search_locations is None and not (spec.origin or "").endswith(".py")):
        raise ConfigurationError("package", name, "is no package of Python files: install it where the executors run")
    if spec.submodule_search_locations is None:
        yield Path(str(spec.origin)), f"{name}.py"
        return
    for root in map(Path, spec.submodule_search_locations):
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path, f"{name}/{path.relative_to(root).as_posix()}"


def list_metadata() -> Iterator[tuple[str, str]]:
    """What says the version and the protocols of the distribution."""
    gapless = distribution("gapless")
    for file in ("METADATA", "entry_points.txt"):
        text = gapless.read_text(file)
        if text is not None:
            yield f"gapless-{gapless.version}.dist-info/{file}", text
