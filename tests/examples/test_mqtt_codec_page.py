"""What docs/mqtt_codec.md shows runs, and prints what it says."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "mqtt_codec.md").read_text()


def test_the_example_prints_what_the_page_says():
    (program,), (output,) = (re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) for kind in ("python", "text"))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == (output, "")


def test_the_page_stays_short():
    assert len(PAGE.splitlines()) <= 40
