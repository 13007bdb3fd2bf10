"""What MkDocs calls while it builds the site. It makes pages that are written for the repository's web view work in a site:

- A diagram (a fence ``mermaid``) becomes a picture, so that no page needs a script for it. Its ``accTitle`` is the picture's text.
- A link to a file of the repository that is not in ``docs/`` leads to a page with that file's text, so that it is read without a network.
"""

from __future__ import annotations

import base64
import posixpath
import re
from html import escape
from pathlib import Path
from typing import Any

import mermaidx
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.superfences import SuperFencesException

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<=\]\()(\.\./[^)\s#]+)(#[^)\s]*)?")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    fences = [{"name": "mermaid", "class": "diagram", "format": draw}]
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": fences}
    return config


def draw(source: str, *_: Any, **__: Any) -> str:
    title = re.search(r"^\s*accTitle: (.+)$", source, re.MULTILINE)
    if title is None:
        raise SuperFencesException(f"a diagram has no text: expected a line `accTitle: ...` in\n{source}")
    picture = base64.b64encode(mermaidx.render(source).svg().encode()).decode()
    return f'<p><img class="diagram" alt="{escape(title[1])}" src="data:image/svg+xml;base64,{picture}"></p>'


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for page in list(files.documentation_pages()):
        for link, _ in LINK.findall(page.content_string):
            path = _outside(page, link)
            if path is not None and files.get_file_from_path(_address(path)) is None:
                files.append(File.generated(config, _address(path), content=_shown(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    def led(link: re.Match[str]) -> str:
        path = _outside(page.file, link[1])
        if path is None:
            return link[0]
        return posixpath.relpath(_address(path), posixpath.dirname(page.file.src_uri) or ".")  # as text: without headings to lead to

    return LINK.sub(led, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if without := [picture for picture in re.findall(r"<img [^>]*>", html) if not re.search(r'alt="[^"]', picture)]:
        raise PluginError(f"{page.file.src_uri}: a picture has no text, write it into the brackets of ![]: {without[0][:200]}")
    return html


def _outside(page: File, link: str) -> str | None:
    """The path in the repository of a linked file, or None where it is one of the documents."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.src_uri), link))
    return None if path.startswith("docs/") else path


def _address(path: str) -> str:
    return f"source/{path}.md"


def _shown(path: str) -> str:
    file = ROOT / path
    if not file.is_file():
        raise PluginError(f"a page links to {path}: expected a file of the repository, found none")
    return f"# {path}\n\n~~~~~{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text()}\n~~~~~\n"
