"""The layer that a file of tests is about: its folder, or in the folder of a protocol what it imports."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent
PAGES = ROOT.parent / "spec"
PURE = "machines"
IMPORTS = {
    "reports": r"statemachines_reports",
    "demo": r"statemachines\.demo",
    "sim": r"statemachines_sim",
    "spec": r"statemachines_spec",
    "drivers": r"statemachines\.drivers|asyncio|scene_server",
    "testing": r"statemachines\.testing",
}
"""Layer -> what its tests import.  The first that fits counts: a test of reports may simulate what it judges."""


def name_layer(file: str, root: Path = ROOT) -> str:
    """The layer of a file, which is named from the folder of tests.

    A protocol's test that imports no layer steps machines, and nothing else: `PURE`.
    """
    first, *deeper = Path(file).parts[:-1] or ("",)
    if not first or not (PAGES / first).is_dir():
        return first
    if deeper and deeper[0] in IMPORTS:
        return deeper[0]
    text = (root / file).read_text(encoding="utf-8")
    found = (layer for layer, names in IMPORTS.items() if re.search(rf"^(from|import) ({names})\b", text, re.MULTILINE))
    return next(found, PURE)
