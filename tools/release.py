"""Build the source distribution and the wheel into dist/, and try the wheel in an environment of its own.

    make release

Refused: a version that the change log does not name, a wheel with a module that is not of the product, a source
distribution that does not build the same wheel, an installed command that does not do its first jobs.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"gapless", "statemachines", "statemachines_sim", "statemachines_spec", "statemachines_reports"}
EXTRAS = "sim,spec,reports,sql"
"""What the jobs below need."""

JOBS = (
    ("show", "stream"),
    ("simulate", "quiet", "--trace", "trace"),
    ("analyze", "trace", "--engine=local", "--out", "report"),
    ("check", "sequence_windows", "--system", "rotation"),
    ("judge", "--template", "kafka"),
)
"""Each ends with exit code 0."""

UNSHIPPED = (
    "import importlib.util as u; print([n for n in ('statemachines_bench', 'tests', 'tools') if u.find_spec(n)])"
)


def build(folder: Path, source: Path = ROOT) -> tuple[Path, Path]:
    """The source distribution and the wheel of the tree in `source`."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=source, check=True, capture_output=True
    )
    (archive,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return archive, wheel


def list_strangers(wheel: Path) -> list[str]:
    """The files of a wheel that are neither in a package of the product nor about the wheel."""
    with ZipFile(wheel) as files:
        return [
            name
            for name in files.namelist()
            if name.partition("/")[0] not in PACKAGES and ".dist-info/" not in name.partition("/")[0] + "/"
        ]


def read_versions(archive: Path, wheel: Path) -> dict[str, str]:
    """Where a version stands -> the version: one for all."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "version" in project["dynamic"], "pyproject.toml takes the version from the package"
    named = (ROOT / "statemachines" / "__init__.py").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return {
        "package": re.findall(r'__version__ = "([^"]+)"', named)[0],
        "change log": re.findall(r"^## (\S+)", changes, re.MULTILINE)[0],
        archive.name: archive.name.removesuffix(".tar.gz").rpartition("-")[2],
        wheel.name: wheel.name.split("-")[1],
    }


def list_differences(wheel: Path, other: Path) -> list[str]:
    """Files that two wheels do not have alike."""
    with ZipFile(wheel) as one, ZipFile(other) as two:
        sums = [{entry.filename: entry.CRC for entry in files.infolist()} for files in (one, two)]
    return sorted({name for name, _ in sums[0].items() ^ sums[1].items()})


def build_again(archive: Path, folder: Path) -> Path:
    """The wheel that a source distribution builds."""
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return build(folder / "dist", source)[1]


def try_installed(wheel: Path, folder: Path) -> None:
    """Install the wheel with the versions of the lock, and let the command do its first jobs."""
    venv.create(folder / "venv", with_pip=True)
    python, gapless = folder / "venv/bin/python", folder / "venv/bin/gapless"
    versions = folder / "versions.txt"
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    versions.write_text("\n".join(re.findall(r"^[\w.\[\]-]+==[^\s;\\]+", lock, re.MULTILINE)) + "\n")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", versions]
    subprocess.run([*install, f"{wheel}[{EXTRAS}]"], check=True)
    for words in (("--version",), *JOBS):
        print("gapless", *words)
        done = subprocess.run([gapless, *words], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"gapless {' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    found = subprocess.run([python, "-c", UNSHIPPED], cwd=folder, capture_output=True, text=True, check=True)
    if found.stdout != "[]\n":
        sys.exit(f"{wheel.name} brings {found.stdout.strip()}")


def main() -> None:
    """Build, check, try; the files are in dist/."""
    dist = ROOT / "dist"
    for path in dist.glob("gapless-*"):
        path.unlink()
    archive, wheel = build(dist)
    versions = read_versions(archive, wheel)
    if len(set(versions.values())) > 1:
        sys.exit(f"versions differ: {versions}")
    if strangers := list_strangers(wheel):
        sys.exit(f"{wheel.name} holds what is not of the product: {', '.join(strangers[:10])}")
    with tempfile.TemporaryDirectory() as folder:
        if differing := list_differences(wheel, build_again(archive, Path(folder))):
            sys.exit(f"{archive.name} builds another wheel: {', '.join(differing[:10])}")
    with tempfile.TemporaryDirectory() as folder:
        try_installed(wheel, Path(folder))
    print(archive, wheel, sep="\n")


if __name__ == "__main__":
    main()
