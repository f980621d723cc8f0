"""Hook of MkDocs: the site is made of the pages of the repository, and of what is generated from the code."""

from __future__ import annotations

from typing import Any

from generated_pages import write_pages
from mkdocs.structure.files import File, Files
from pymdownx.slugs import slugify
from repository_pages import ROOT, adapt_markdown, list_linked_files, list_pages

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


def on_page_markdown(markdown: str, **_: Any) -> str:
    return adapt_markdown(markdown)
