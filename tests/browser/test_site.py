"""The documentation as a site, opened as files in a real browser that reaches no network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from docs.site import build

TYPED_MS = 200


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built") / "site"
    build.install()
    build.build(folder)
    return folder


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(offline=True)
    yield context.new_page()
    context.close()


def test_every_page_asks_for_files_of_the_site_only_and_complains_of_nothing(site: Path, page: Page) -> None:
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("requestfailed", lambda request: complaints.append(f"{request.url}: {request.failure}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    for file in sorted(site.rglob("*.html")):
        page.goto(file.as_uri())
        assert page.locator("article h1").count() == 1, file.name
    assert [url for url in asked if not url.startswith((site.as_uri(), "data:"))] == []
    assert complaints == []


def test_the_search_finds_a_word(site: Path, page: Page) -> None:
    page.goto((site / "index.html").as_uri())
    page.locator("label.md-search__icon[for=__search]").first.click(force=True)
    expect(page.locator(".md-search-result__meta")).to_have_text("Type to start searching")  # the search has begun to work
    page.locator("input[name=query]").press_sequentially("watchdog", delay=TYPED_MS)
    expect(page.locator(".md-search-result__item").first).to_contain_text("watchdog", ignore_case=True)
