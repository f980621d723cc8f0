"""What docs/sequence_windows.md shows runs, and prints what it says."""

import re
import subprocess
import sys
from pathlib import Path

from statemachines.drivers.sequence_windows import read_windows

PAGE = (Path(__file__).parents[2] / "docs" / "sequence_windows.md").read_text()


def test_the_first_example_prints_what_the_page_says():
    program = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
    said = re.search(r"prints\n\n```text\n(.*?)```", PAGE, re.DOTALL)[1]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(said)
    assert re.search(r"prices~1 \| .*\|         2 \|", done.stdout)


def test_the_configuration_that_the_page_shows_is_read(tmp_path):
    path = tmp_path / "param.yaml"
    path.write_text(re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1])
    assert read_windows(path).publisher.size == 10 << 20


def test_the_example_of_both_prints_what_the_page_says():
    part = PAGE[PAGE.index("## Recovery") :]
    program, said = (re.search(rf"```{kind}\n(.*?)```", part, re.DOTALL)[1] for kind in ("python", "text"))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr) == (said, "")
