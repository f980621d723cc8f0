"""The documentation site: its navigation has every page once, and pages are adapted to its Markdown."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/documentation"))

from repository_pages import adapt_markdown, list_linked_files, list_pages  # noqa: E402


def list_navigated(entry):
    """The pages of an entry of the navigation and of those below it."""
    if isinstance(entry, str):
        return [entry]
    below = entry.values() if isinstance(entry, dict) else entry
    return [page for one in below for page in list_navigated(one)]


NAVIGATED = list_navigated(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])


def test_the_navigation_names_every_page_once_and_no_other():
    assert {page: count for page, count in Counter(NAVIGATED).items() if count > 1} == {}
    assert sorted(NAVIGATED) == sorted(list_pages())


def test_files_that_a_page_links_to_are_copied():
    assert list_linked_files("docs/architecture.md") == {"examples/log_shipper.py"}


@pytest.mark.parametrize(
    ("written", "adapted"),
    [
        ("Text:\n- one\n  - two", "Text:\n\n- one\n    - two"),
        ("- one\n  more\n\nText", "- one\n    more\n\nText"),
        ("    - code\n", "    - code"),
        ("```python shop.py\n- x\n```", '```python title="shop.py"\n- x\n```'),
        ("```python shop.py +\n```", '```python title="shop.py, continued"\n```'),
        ("- **SS-30** Text", '- <a id="ss-30"></a>**SS-30** Text'),
        ("- **S5 Title.** Text", '- <a id="s5"></a>**S5 Title.** Text'),
        ("- **Bold** text", "- **Bold** text"),
    ],
)
def test_lists_listings_and_anchors_are_adapted(written, adapted):
    assert adapt_markdown(written) == adapted + "\n"
