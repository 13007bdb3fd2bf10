"""Make the Data Docs site of Great Expectations open offline, and legible.

As they are built, its pages load about fifteen style sheets and scripts from elsewhere and a logo whose address carries the project's id,
and without a network they show next to nothing: no layout, folded parts that do not open, an index that is filled by a script. Here each
page is written again from its own content: a known set of elements and attributes is kept, folded parts become ``<details>``, icons become
words, and one small style sheet of our own is put in. A content security policy on top of that forbids the browser every request, so a
page that this rewriting does not know stays offline too. The index is written anew, from the results.
"""

from __future__ import annotations

import shutil
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jinja2

REPORT = "../../report.html"  # from the site's folder in the run's
_TEMPLATES = Path(__file__).parent / "templates"
_VOID = {"br", "hr", "wbr", "col"}
_TEXT = """
    a b body caption code dd details div dl dt em h1 h2 h3 h4 h5 h6 i li nav ol p pre section small span strong sub summary sup
    table tbody td tfoot th thead tr u ul
"""
_KEPT = _VOID | set(_TEXT.split())
_ATTRIBUTES = {"id", "class", "colspan", "rowspan", "hidden", "lang", "role", "aria-label", "aria-current"}
_DROPPED = {"script", "style", "head", "footer", "button", "iframe", "object", "svg", "noscript", "form", "select", "textarea", "title"}
_ICONS = {"fa-check-circle": ("holds", "✓"), "fa-times": ("fails", "✗"), "fa-exclamation-triangle": ("error", "!")}


def make_self_contained(site: Path, verdict: dict[str, Any], groups: dict[str, list[dict[str, Any]]], errors: list[str]) -> None:
    """Rewrite every page of the site in place, drop its assets, and write its index. ``groups`` are the results by suite."""
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined)
    page = environment.get_template("data_docs_page.html.j2")
    run = str(verdict.get("run"))
    for path in sorted(site.rglob("*.html")):
        up = "../" * (len(path.relative_to(site).parts) - 1)
        path.write_text(page.render(run=run, home=f"{up}index.html", report=f"{up}{REPORT}", body=rewrite(path.read_text())))
    shutil.rmtree(site / "static", ignore_errors=True)
    validations = sorted(path.relative_to(site).as_posix() for path in site.glob("validations/**/*.html"))
    suites = sorted(path.relative_to(site).as_posix() for path in site.glob("expectations/**/*.html"))
    pages = {"Validation result": validations, "Expectation suite": suites}
    index = environment.get_template("data_docs_index.html.j2")
    text = index.render(run=run, home=None, report=REPORT, verdict=verdict, groups=groups, errors=errors, links=_links(pages, list(groups)))
    (site / "index.html").write_text(text)


def _links(pages: dict[str, list[str]], names: list[str]) -> list[tuple[str, str]]:
    """Each page with its title. A page's address begins with its suite's name, in which a character that no file has is another."""
    links = []
    for name in names:
        for what, paths in pages.items():
            matching = [path for path in paths if _plain(name) in _plain(path)] if len(names) > 1 else paths[-1:]
            links += [(path, f"{what}: {name}") for path in matching[-1:]]
    return links


def _plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def rewrite(page: str) -> str:
    """The content of a page's ``<body>`` with nothing in it that a browser would load, run or follow elsewhere."""
    rewriter = _Rewriter()
    rewriter.feed(page)
    rewriter.close()
    return "".join(rewriter.written)


class _Rewriter(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.written: list[str] = []
        self._open: list[tuple[str, str]] = []  # each open element of the page, with what is to be written at its end
        self._skipped: list[str] = []  # inside an element that is dropped with all it holds
        self._fold: list[str] | None = None  # the words of a link that unfolds something, while they are read
        self._summary = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skipped:
            if tag not in _VOID | {"img", "input", "link", "meta"}:
                self._skipped.append(tag)
            return
        attributes = {name: value or "" for name, value in attrs}
        classes = attributes.get("class", "").split()
        if tag in _DROPPED or self._is_control(tag, classes):
            self._skipped.append(tag)
        elif tag == "a" and attributes.get("data-toggle") == "collapse":
            self._fold = []
            self._open.append((tag, ""))
        elif tag == "i" and (icon := next((name for name in classes if name in _ICONS), None)):
            word, mark = _ICONS[icon]
            self.written.append(f'<span class="mark {word}"><span aria-hidden="true">{mark}</span> {word}</span>')
            self._skipped.append(tag)
        elif tag in _VOID:
            self.written.append(f"<{tag}>")
        elif tag in _KEPT and tag != "body":
            self._start(tag, attributes, classes)
        elif tag not in {"img", "input", "link", "meta", "base"}:
            self._open.append((tag, ""))

    def _start(self, tag: str, attributes: dict[str, str], classes: list[str]) -> None:
        end = f"</{tag}>"
        if "collapse" in classes and self._summary:
            self.written.append(f"<details><summary>{escape(self._summary)}</summary>")
            self._summary, end = "", end + "</details>"
        if tag == "a" and not _is_local(attributes.get("href", "")):
            tag, end = "span", "</span>"
            attributes.pop("href", None)
            self._open.append(("a", end))
        else:
            self._open.append((tag, end))
        kept = {name: value for name, value in attributes.items() if name in _ATTRIBUTES or (name == "href" and tag == "a")}
        written = "".join(f' {name}="{escape(value)}"' for name, value in kept.items())
        self.written.append(f"<{tag}{written}>")

    @staticmethod
    def _is_control(tag: str, classes: list[str]) -> bool:
        """The site's own navigation bar, its list of contents and its filter: they need scripts, or say what the page says anyway."""
        return (tag == "nav" and "navbar" in classes) or (tag == "div" and "card" in classes and "collapse" not in classes)

    def handle_endtag(self, tag: str) -> None:
        if self._skipped:
            if tag in self._skipped:
                del self._skipped[len(self._skipped) - 1 - self._skipped[::-1].index(tag) :]
            return
        if tag not in (name for name, _ in self._open):
            return
        while self._open:
            name, end = self._open.pop()
            self.written.append(end)
            if name == tag:
                break
        if tag == "a" and self._fold is not None:
            self._summary, self._fold = " ".join("".join(self._fold).split()).rstrip("."), None

    def handle_data(self, data: str) -> None:
        if self._skipped:
            return
        if self._fold is not None:
            self._fold.append(data)
        else:
            self.written.append(escape(data, quote=False))

    def close(self) -> None:
        super().close()
        while self._open:
            self.written.append(self._open.pop()[1])


def _is_local(address: str) -> bool:
    """A link within the site: a fragment or a relative path."""
    return bool(address) and not address.startswith(("/", "\\")) and ":" not in address.split("#", 1)[0]
