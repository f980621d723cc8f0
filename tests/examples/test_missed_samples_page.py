"""What docs/missed_samples.md shows runs, and prints what it says."""

import contextlib
import io
import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "missed_samples.md").read_text()


def test_the_page_prints_what_it_says():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (said,) = re.findall(r"prints\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "docs/missed_samples.md", "exec"), {})
    assert out.getvalue() == said
