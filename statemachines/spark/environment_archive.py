"""Environment archive: an interpreter and the libraries of tasks, for executors that have no Python like the driver's.

    bin/python                 a script that runs the interpreter beside it, wherever the archive is unpacked
    bin/python3.N  lib/...     the interpreter of this environment, and its standard library
    packages/                  the libraries

Our own code is not in it: the driver sends that with every command.  The executors need the C library of this machine,
or a newer one, and its kind of processor.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final, NamedTuple

from statemachines.kernel import ConfigurationError
from statemachines.spark.code_archive import LIBRARIES
from statemachines.whole_file import check_folder, whole_file

ENDINGS: Final = (".tar.gz", ".tgz")
"""Spark unpacks an archive by the end of its name.  It knows `.tar`, too, and then forgets what is a program."""

LEVEL = 1
"""How much it is packed: little, as it is sent once and unpacked by every executor."""

ROOTS: Final = (*LIBRARIES, "pyspark")

LEFT_OUT: Final = ("__pycache__", "test", "idlelib", "ensurepip", "site-packages", "dist-packages")
"""Folders of the standard library that no task needs."""

JARS: Final = "pyspark/jars/"
"""Spark itself, which the executors have."""

SCRIPT: Final = """#!/bin/sh
here=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
export PYTHONHOME="$here" LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$here/packages"
exec "$here/bin/NAME" "$@"
"""

Entry = tuple[Path, str]
"""A file, and its place in the archive."""


class ArchiveContent(NamedTuple):
    """What an archive holds: distribution -> version, and how many files."""

    versions: dict[str, str]
    files: int


def write_environment(path: Path, names: Iterable[str] = ()) -> ArchiveContent:
    """Write the archive with the libraries of tasks, and with the distributions `names` and what they need.  Raises
    `ConfigurationError` for a name that is not installed, or an ending that Spark does not know."""
    ending = next((one for one in ENDINGS if path.name.endswith(one)), None)
    if ending is None or path.name == ending:
        raise ConfigurationError("FILE", str(path), f"must end in {' or '.join(ENDINGS)}, by which Spark unpacks it")
    check_folder(path.absolute().parent, "FILE")
    found = find_distributions([*ROOTS, *names])
    entries = [*(entry for one in found.values() for entry in list_installed(one)), *list_interpreter()]
    script = SCRIPT.replace("NAME", interpreter_name()).encode()
    with whole_file(path) as partial, tarfile.open(partial, "w:gz", compresslevel=LEVEL) as archive:
        about = tarfile.TarInfo("bin/python")
        about.size, about.mode = len(script), 0o755
        archive.addfile(about, io.BytesIO(script))
        for file, place in sorted(entries, key=lambda entry: entry[1]):
            add_file(archive, file, place)
    return ArchiveContent({name: one.version for name, one in sorted(found.items())}, len(entries) + 1)


def add_file(archive: tarfile.TarFile, file: Path, place: str) -> None:
    """A file, what a link points to in its place: the same files are the same archive, whoever has them."""
    about = tarfile.TarInfo(place)
    status = file.stat()
    about.size, about.mode = status.st_size, 0o755 if status.st_mode & 0o100 else 0o644
    with file.open("rb") as data:
        archive.addfile(about, data)


def interpreter_name() -> str:
    """The name of the interpreter in the archive."""
    return f"python{sys.version_info[0]}.{sys.version_info[1]}"


def list_interpreter() -> Iterator[Entry]:
    """The interpreter under this environment, its library where it is shared, and its standard library."""
    base = Path(sys.base_prefix)
    program = base / "bin" / interpreter_name()
    if not program.is_file():
        program = Path(shutil.which(interpreter_name(), path=str(base / "bin")) or sys.executable).resolve()
    yield program, f"bin/{interpreter_name()}"
    shared = sysconfig.get_config_var("INSTSONAME") or ""
    library = Path(sysconfig.get_config_var("LIBDIR") or "") / shared
    if ".so" in shared and library.is_file():
        yield library, f"lib/{shared}"
    stdlib = Path(sysconfig.get_path("stdlib"))
    place = stdlib.relative_to(base).as_posix() if stdlib.is_relative_to(base) else f"lib/{interpreter_name()}"
    for folder, inner, files in os.walk(stdlib):
        inner[:] = sorted(one for one in inner if one not in LEFT_OUT and not one.startswith("config-"))
        for file in files:
            path = Path(folder, file)
            yield path, f"{place}/{path.relative_to(stdlib).as_posix()}"


def find_distributions(names: Iterable[str]) -> dict[str, Distribution]:
    """Name -> distribution, of these and of all that they require, extras left out."""
    found: dict[str, Distribution] = {}
    open_names = [(name, True) for name in names]
    while open_names:
        name, is_needed = open_names.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            found[key] = distribution(name)
        except PackageNotFoundError as error:
            if is_needed:
                raise ConfigurationError(
                    "--with", name, "is not installed here: install it, then pack again"
                ) from error
            continue  # a requirement of another system or Python
        for line in found[key].requires or ():
            if not re.search(r"\bextra\s*==", line):
                open_names.append((re.split(r"[\s;<>=!~\[(]", line, maxsplit=1)[0], False))
    return found


def list_installed(one: Distribution) -> Iterator[Entry]:
    """The files of a distribution that stand among the packages; raises `ConfigurationError` for one whose files are
    elsewhere."""
    origin = json.loads(one.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        rule = "is installed as a link to its folder: install it as a package, or leave it to the driver to send"
        raise ConfigurationError("--with", one.metadata["Name"], rule)
    for file in one.files or ():
        place = file.as_posix()
        if not place.startswith(("..", "/", JARS)) and "__pycache__" not in file.parts:
            path = Path(str(file.locate()))
            if path.is_file():
                yield path, f"packages/{place}"
