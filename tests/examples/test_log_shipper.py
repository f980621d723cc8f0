"""examples/log_shipper.py ships every line, although two processes are killed; and what docs/queue.md shows runs."""

import re
import subprocess
import sys
from pathlib import Path

from statemachines.drivers.cursor_recovery.segment import path_of

ROOT = Path(__file__).parents[2]


def test_lines_are_shipped_although_processes_are_killed():
    program = ROOT / "examples" / "log_shipper.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    acknowledged, shipped = (int(number) for number in re.findall(r"(\d+) (?:lines acknowledged|shipped)", done.stdout))
    assert acknowledged >= 600
    assert shipped >= acknowledged - 1


def test_the_first_example_of_the_document_runs():
    text = (ROOT / "docs" / "queue.md").read_text()
    example = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    first, second = example.split("\nwith CircularQueue.attach")
    inner = "    with CircularQueue.attach" + second.replace("\n    ", "\n        ")
    program = (first + "\n" + inner).replace('"jobs"', '"docs-example"')
    assert not path_of("docs-example").exists()
    scope = {}
    exec(program, scope)
    assert scope["message"] == b"a message"
    assert scope["got"].message == b"one"
