"""The program in `spec/README.md` runs."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[2] / "spec" / "README.md"


def test_the_program_of_the_page_runs():
    programs = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (program,) = [one for one in programs if "explore(" in one]
    space = {}
    exec(compile(program, str(README), "exec"), space)
    assert space["result"].states > 1_000
