"""What docs/sessions.md shows runs, and prints what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "sessions.md").read_text()


PROGRAMS, SAID = (re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) for kind in ("python", "text"))


@pytest.mark.parametrize(
    ("program", "said"), list(zip(PROGRAMS, SAID, strict=True)), ids=["application", "groups", "machines", "database"]
)
def test_the_examples_print_what_the_page_says(program, said):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr) == (said, "")
