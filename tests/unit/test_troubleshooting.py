"""The troubleshooting page quotes messages that the code has: no message of the page is made up, or left from an older version."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.support.checkout import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
VARIES = "…"


def _messages(text: str) -> list[str]:
    """What the first column of the page's tables quotes."""
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def _template(node: ast.AST) -> str:
    """A string of the code with what varies left out."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(part) for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else VARIES


@cache
def _templates() -> tuple[str, ...]:
    """Every string of the code that is not a docstring, with what stands in code quotes left out, as in the page."""
    found = set()
    for file in (ROOT / "src" / "streamproof").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text())))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            text = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
            if text and id(node) not in docstrings:
                found.add(re.sub(r"`[^`]*`", VARIES, _template(node)))
    return tuple(found)


def _quoted(message: str) -> bool:
    """Whether one string of the code has the fixed parts of the message, in their order."""
    fixed = [part for part in message.split(VARIES) if part.strip(" :;,.()")]
    return any(_holds(template, fixed) for template in _templates())


def _holds(template: str, parts: list[str]) -> bool:
    at = 0
    for part in parts:
        at = template.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


def test_every_message_of_the_page_is_one_of_the_code() -> None:
    messages = _messages(PAGE.read_text())
    assert len(messages) > 40
    assert [message for message in messages if not _quoted(message)] == []


def test_a_message_that_the_code_does_not_have_is_noticed() -> None:
    assert not _quoted("the testbed is held by ghost …")
    assert not _quoted("not up: … the testbed is damaged")


def test_every_message_has_words_that_are_its_own() -> None:
    assert [message for message in _messages(PAGE.read_text()) if max(map(len, message.split(VARIES))) < 8] == []
