"""The certificates of protocols: which there are, which are stale, and what exploring them again comes to.

They stand in the folder `certificates` beside the page of a protocol.  Every system of a protocol has one at its first
size.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from multiprocessing import get_context
from pathlib import Path

import msgspec

from statemachines import catalogue, registry
from statemachines.kernel import GaplessError
from statemachines_spec import certificates
from statemachines_spec.explorer.explore import COMPLETE, explore
from statemachines_spec.explorer.system import SYMMETRY
from statemachines_spec.protocol import of_protocol

SMALL = 100_000
"""States: a certificate of no more is explored again in a second or two."""
ROOM = 4
"""How many times as many states as its certificate says a system may have before exploring gives up."""
STATES_MIN = 20_000_000


class StoredCertificate(msgspec.Struct, frozen=True):
    """One certificate: its file, the system that it is about, its `states` (0: there is none yet)."""

    path: Path
    protocol: str
    system: str
    size: str
    variant: str
    states: int = 0
    in_full: bool = False

    @property
    def name(self) -> str:
        """For people: protocol and file."""
        return f"{self.protocol}/{self.path.stem}"

    @property
    def small(self) -> bool:
        """Whether it is explored again in no time."""
        return self.states <= SMALL


class Recheck(msgspec.Struct, frozen=True):
    """What exploring again came to: `differences` from the certificate, one line each; `broken`: why the system has no
    certificate now ("": it may have one); whether it was `written` anew."""

    kept: StoredCertificate
    differences: tuple[str, ...]
    broken: str
    written: bool
    states: int
    seconds: float

    @property
    def agrees(self) -> bool:
        """The certificate says what is so."""
        return not self.differences and not self.broken


def folder_of(protocol: str) -> Path:
    """Where the certificates of a protocol stand."""
    return catalogue.page(protocol).with_name("certificates")


def protocols() -> tuple[str, ...]:
    """Those that have certificates."""
    named = (one.name for one in registry.protocols() if "spec" in one.areas and one.page)
    return tuple(name for name in named if folder_of(name).is_dir())


def list_certificates(names: Iterable[str] = ()) -> tuple[StoredCertificate, ...]:
    """Those of the protocols called so (none named: of all), the smallest first; missing ones before them."""
    found: list[StoredCertificate] = []
    for protocol in tuple(names) or protocols():
        part, folder = of_protocol(protocol), folder_of(protocol)
        size, variant = part.sizes[0], next(iter(part.variants))
        there = {path: certificates.read(path) for path in sorted(folder.glob("*.json"))}
        for path, one in there.items():
            in_full = path.stem.endswith("in-full") and SYMMETRY not in one.bounds
            found.append(StoredCertificate(path, protocol, one.system, one.size, one.variant, one.states, in_full))
        for system in part.systems:
            path = folder / certificates.file_name(system, size)
            if path not in there:
                found.append(StoredCertificate(path, protocol, system, size, variant))
    return tuple(sorted(found, key=lambda one: (one.states, one.name)))


def is_stale(kept: StoredCertificate) -> bool:
    """Whether it has to be written anew: the code that it rests on has changed, or it is missing, or its system is."""
    if not kept.states:
        return True
    try:
        return certificates.is_stale(certificates.read(kept.path))
    except GaplessError:
        return True


def recheck(kept: StoredCertificate, *, write: bool = False) -> Recheck:
    """Explore its system again; with `write` the certificate is written anew, where everything holds."""
    began = time.monotonic()
    try:
        return _recheck(kept, write, began)
    except GaplessError as error:
        return Recheck(kept, (), f"cannot be explored: {error}", False, 0, time.monotonic() - began)


def recheck_all(some: Iterable[StoredCertificate], *, write: bool = False, jobs: int = 1) -> Iterator[Recheck]:
    """Each of them, as they come to an end, in so many processes."""
    tasks = [(one, write) for one in some]
    if jobs == 1:
        yield from map(_task, tasks)
        return
    with get_context("spawn").Pool(jobs, maxtasksperchild=50) as pool:
        yield from pool.imap_unordered(_task, tasks)


def _task(task: tuple[StoredCertificate, bool]) -> Recheck:
    return recheck(task[0], write=task[1])


def _recheck(kept: StoredCertificate, write: bool, began: float) -> Recheck:
    old = certificates.read(kept.path) if kept.states else None
    new = certificates.find_system(
        kept.protocol, kept.system, size=kept.size, variant=kept.variant, in_full=kept.in_full
    )
    result = explore(new, states_max=max(STATES_MIN, ROOM * kept.states))
    differences = ("there is no certificate yet",) if old is None else tuple(certificates.list_differences(old, result))
    broken = ""
    if result.path is not None:
        broken = f"VIOLATED {result.path.broken}: {result.path.why}"
    elif result.ended != COMPLETE:
        broken = f"not explored to the end: {result.states:,} states, the certificate says {kept.states:,}"
    elif not result.is_shown:
        broken = f"never happens: {', '.join(name for name, count in result.sometimes.items() if not count)}"
    written = write and not broken
    if written:
        certificates.write(kept.path.parent, kept.protocol, kept.size, kept.variant, result, in_full=kept.in_full)
    return Recheck(kept, differences, broken, written, result.states, time.monotonic() - began)
