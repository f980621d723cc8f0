"""The programs that the pages of the specification show run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "systems.md"


def test_the_system_that_the_page_declares_is_explored():
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (program,) = [one for one in programs if "explore(" in one]
    space = {}
    exec(compile(program, str(PAGE), "exec"), space)
    assert space["result"].states > 1_000
