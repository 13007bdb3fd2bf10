"""Great Expectations' pages, whose templates are compiled once in a process: it makes an environment of Jinja for each page, and compiles
them anew. Measured: a third of an evaluation.
"""

from __future__ import annotations

from great_expectations.render.view.view import DefaultJinjaIndexPageView, DefaultJinjaPageView
from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

VIEW = {"module_name": __name__, "class_name": "PageView"}
INDEX_VIEW = {"module_name": __name__, "class_name": "IndexPageView"}


class _Kept(BytecodeCache):
    """Compiled templates by key, which Jinja makes of a template's name; a bucket knows by the source whether it is the same."""

    def __init__(self) -> None:
        self._compiled: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if (code := self._compiled.get(bucket.key)) is not None:
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._compiled[bucket.key] = bucket.bytecode_to_string()


_KEPT = _Kept()


class PageView(DefaultJinjaPageView):
    def __init__(self, **options: str | None) -> None:
        super().__init__(**options)
        self.env.bytecode_cache = _KEPT


class IndexPageView(DefaultJinjaIndexPageView):
    def __init__(self, **options: str | None) -> None:
        super().__init__(**options)
        self.env.bytecode_cache = _KEPT
