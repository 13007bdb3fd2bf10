"""What tests see in a page: what its charts really drew, and what would be a barrier to somebody."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Frame, Page

MARKS = """name => {
  const live = document.querySelector('.chart .live');
  const found = [];
  const walk = (item, x) => {
    if (item.marktype !== undefined) {
      if (item.name && item.name.replace(/_\\d+_marks$/, '') === name)
        for (const one of item.items) found.push({...one.datum, x, left: one.x, width: one.width, height: one.height, text: one.text});
      for (const one of item.items) walk(one, x);
    } else if (item.items) for (const one of item.items) walk(one, x + (item.x || 0));
  };
  walk(live.view.scenegraph().root, 0);
  return found;
}"""


def marks(page: Page | Frame, name: str) -> list[dict[str, Any]]:
    """What the chart drew for the marks of this name: their data, and where they lie. Waits until it is drawn."""
    page.wait_for_selector(".chart.drawn")
    found: list[dict[str, Any]] = page.evaluate(MARKS, name)
    return found


def barriers(page: Page | Frame) -> list[str]:
    """The serious and critical violations that axe-core finds."""
    response = Axe().run(page).response
    return [
        f"{each['id']}: {each['help']} ({', '.join(str(node['target']) for node in each['nodes'][:3])})"
        for each in response["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def overflow(page: Page | Frame) -> int:
    """By how many pixels the page is wider than its window."""
    found: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return found
