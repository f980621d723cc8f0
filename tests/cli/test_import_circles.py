"""No module imports itself by way of others, be it in a function or for its types alone (`make lint`)."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
(CONTRACT,) = (one for one in LINTER["contracts"] if one["type"] == "acyclic_siblings")
CONFIG = """
[importlinter]
root_package = planted
[importlinter:contract:circles]
name = No circles
type = acyclic_siblings
ancestors = planted
"""
LINT = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports('lint.ini', no_cache=True))"
OF_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from planted.low.one import One\n"
IN_FUNCTION = "def find():\n    from planted.low.one import One\n"


def test_no_package_and_no_import_is_left_out():
    assert sorted(CONTRACT["ancestors"]) == sorted(LINTER["root_packages"])
    assert "ignore_imports" not in CONTRACT


@pytest.mark.parametrize(("two", "code"), [("", 0), (OF_TYPES, 1), (IN_FUNCTION, 1)])
def test_a_circle_is_found(tmp_path, two, code):
    for name, text in {
        "__init__.py": "", "low/__init__.py": "", "low/one.py": "from planted.high import Two\nclass One: ...\n",
        "high.py": f"{two}class Two: ...\n",
    }.items():  # fmt: skip
        path = tmp_path / "planted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "lint.ini").write_text(CONFIG)
    done = subprocess.run([sys.executable, "-c", LINT], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    assert (".low -> .high" in done.stdout or ".high -> .low" in done.stdout) == bool(code)
