"""The processes of a group: they start, are waited for, killed, stopped, and none outlives its harness."""

import re
from pathlib import Path

from statemachines.testing import process_harness

README = Path(process_harness.__file__).with_name("README.md")


def test_the_example_of_the_readme_runs(tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if "GroupHarness(" in block)
    (tmp_path / "README.md").write_text("one line\nanother\n")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(README), "exec"), {})
    assert "published 2 messages" in (tmp_path / "out" / "nodes" / "publisher-1.out").read_text()
