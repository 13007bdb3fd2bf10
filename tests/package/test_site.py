"""The documentation as a site: it is built strictly, holds every page as it was meant, and is read without a network."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import bootstrap
from docs.site import build
from tests.support.checkout import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
CODE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
BUILT = ("docs", "mkdocs.yml", "build", "dist")


pytestmark = pytest.mark.timeout(700)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "site"
    build.install()
    build.build(folder)
    return folder


def _article(site: Path, page: str) -> str:
    """What of a page was written by us."""
    return (site / f"{page}.html").read_text().partition("<article")[2].partition("</article>")[0]


@pytest.mark.parametrize("page", [page.stem for page in PAGES])
def test_a_page_has_the_tables_and_lists_that_were_written(site: Path, page: str) -> None:
    prose = CODE.sub("", (DOCS / f"{page}.md").read_text())
    shown = _article(site, page)
    assert shown.count("<table>") == len(re.findall(r"^\|[-| :]+\|$", prose, re.MULTILINE))
    paragraphs = re.findall(r"<p>(.*?)</p>", shown, re.DOTALL)
    unread = r"\| ?---|(^|\n)(- |\d+\. |```|~~~|#)|\]\("
    assert [text[:200] for text in paragraphs if re.search(unread, text)] == [], "Markdown that the site shows as it is"


def test_nothing_of_a_page_comes_from_the_network(site: Path) -> None:
    asked = {}
    for page in site.rglob("*.html"):
        text = page.read_text()
        loads = re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?([^\s\">]+)", text) + re.findall(
            r"<link\b[^>]*\bhref=\"?([^\s\">]+)", text
        )
        asked[page.name] = [address for address in loads if re.match(r"(https?:)?//", address)]
        assert 'class="mermaid"' not in text, "the theme would load a script from the network for it"
    for style in site.rglob("*.css"):
        asked[style.name] = re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^)\"']+)", style.read_text())
    assert {name: addresses for name, addresses in asked.items() if addresses} == {}


def test_a_file_that_a_page_links_to_is_read_in_the_site(site: Path) -> None:
    assert 'href="source/pipelines/forward.py.html"' in _article(site, "engines")
    assert "def exactly_once" in re.sub(r"<[^>]+>", "", _article(site, "source/pipelines/forward.py"))


def test_a_diagram_is_a_picture_with_a_text(site: Path) -> None:
    assert _article(site, "architecture").count('<img class="diagram" alt="') == (DOCS / "architecture.md").read_text().count("```mermaid")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "written", "damaged", "told"),
    [
        ("faq.md", "(engines.md#any-command-line)", "(engines.md#any-command)", "engines.md#any-command"),
        ("faq.md", "(performance.md)", "(performances.md)", "performances.md"),
        ("performance.md", "![records a second and MiB by size]", "![]", "a picture has no text"),
        ("architecture.md", "    accTitle: the stages of a run and their order\n", "", "a diagram has no text"),
    ],
)
def test_a_page_that_is_not_right_is_an_error(
    page: str, written: str, damaged: str, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    build.install()
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    for path in ROOT.iterdir():  # what the pages may link to
        if not path.name.startswith(".") and path.name not in BUILT:
            (tmp_path / path.name).symlink_to(path)
    text = (tmp_path / "docs" / page).read_text()
    assert text.count(written) >= 1
    (tmp_path / "docs" / page).write_text(text.replace(written, damaged, 1))
    with pytest.raises(bootstrap.Failure, match="the site: exit code"):
        build.build(tmp_path / "site", tmp_path)
    printed = capfd.readouterr()
    assert told in printed.out + printed.err
