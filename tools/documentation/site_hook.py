"""Hook of MkDocs: the site is made of the pages of the repository, and of what is generated from the code."""

from __future__ import annotations

import re
from itertools import cycle
from typing import Any

from generated_pages import write_pages
from mkdocs.structure.files import File, Files
from pymdownx.slugs import slugify
from repository_pages import ROOT, adapt_markdown, list_linked_files, list_pages

TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
HEAD = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
CELL = re.compile(r"<td\b")
LISTS = ("spec/", "sim/scenarios/", "examples/", "benchmarks/", "CHANGELOG", "CONTRIBUTING")
STYLE = ROOT / "tools/documentation/site.css"


def on_config(config: Any) -> Any:
    """Headings are called as the usual hosts of repositories call them."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: Any) -> Files:
    """The pages, the files that they link to, and those of the theme."""
    pages = list_pages()
    linked = set().union(*map(list_linked_files, pages))
    found = Files([one for one in files if one.src_dir != config.docs_dir])
    for name in [*pages, *sorted(linked)]:
        found.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for name, text in write_pages().items():
        found.append(File.generated(config, name, content=text))
    found.append(File.generated(config, STYLE.name, abs_src_path=str(STYLE)))
    return found


def on_page_content(html: str, **_: Any) -> str:
    """Each cell carries the heading of its column, which a narrow window shows in front of it (site.css)."""
    return TABLE.sub(_label_cells, html)


def _label_cells(table: re.Match[str]) -> str:
    heads = [re.sub(r"<[^>]+>", "", one).replace('"', "&quot;") for one in HEAD.findall(table[0])]
    columns = cycle(heads)
    return CELL.sub(lambda _: f'<td data-head="{next(columns)}"', table[0]) if any(heads) else table[0]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A search shows pages that say how to do something before long lists of rules."""
    if page.file.src_uri.startswith(LISTS):
        page.meta["search"] = {"boost": 0.1}
    return adapt_markdown(markdown)
