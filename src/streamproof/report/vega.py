"""Charts that are described rather than drawn, and shown without a network: Altair describes, Vega draws.

A page holds a chart twice. As two pictures, a wide and a narrow one, that are drawn here: they are there at once, on paper and where
scripts are off. And as its description, from which the library in the reader's browser draws it as wide as there is room, with tooltips,
in the pictures' place. Colours are the style sheet's variables, so both follow light and dark.

The library is put together once for its version and kept in a file, for that takes a second. It runs under a content security policy that
allows nothing but these very scripts: expressions are interpreted rather than compiled, and no address is asked for anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from streamproof.evidence.folder import write_atomically

if TYPE_CHECKING:
    import altair as alt

WIDE, NARROW = 880, 300
START = (Path(__file__).parent / "templates" / "charts.js").read_text()


@dataclass(frozen=True)
class Figure:
    """A chart as a page holds it. ``words`` say what it shows."""

    name: str
    words: str
    wide: Markup
    narrow: Markup
    description: Markup


def figure(chart: alt.VConcatChart, name: str, words: str) -> Figure:
    """``chart`` is panels one below the other; each is given the width that there is room for."""
    described = chart.to_dict()
    described["config"] = CONFIG
    return Figure(name, words, _picture(described, WIDE), _picture(described, NARROW), Markup(_data(described)))


def _picture(described: dict[str, Any], width: int) -> Markup:
    import vl_convert

    panels = [{**panel, "width": width} for panel in described["vconcat"]]
    drawn: str = vl_convert.vegalite_to_svg({**described, "vconcat": panels})
    return Markup(drawn)


def _data(described: dict[str, Any]) -> str:
    """JSON that cannot end the element that it stands in."""
    return json.dumps(described, separators=(",", ":")).replace("<", "\\u003c")


def library(kept: Path | None = None) -> str:
    """Vega, Vega-Lite and Vega-Embed as one module. ``kept`` is a folder in which it is looked for, and left."""
    import vl_convert

    if kept is None:
        return _bundle()
    path = kept / f"vega-{vl_convert.get_vega_version()}-{vl_convert.get_vegalite_versions()[-1]}-{vl_convert.get_vega_embed_version()}.js"
    if not path.exists():
        write_atomically(path, _bundle())
    return path.read_text()


@cache
def _bundle() -> str:
    import vl_convert

    made: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return made


def allowed(*scripts: str) -> Markup:
    """What a content security policy says of scripts that stand in the page: these, and no other."""
    return Markup(" ".join(f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts))


CONFIG: dict[str, Any] = {
    "background": None,
    "font": 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif',
    "padding": {"left": 0, "right": 12, "top": 2, "bottom": 2},
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--soft)",
        "titleColor": "var(--soft)",
        "gridColor": "var(--line)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    },
    "axisX": {"labelFlush": False},
    "axisY": {
        "minExtent": 40,
        "maxExtent": 40,
        "domain": False,
        "ticks": False,
        "format": "~s",
        "tickCount": 3,
        "title": None,
        "labelExpr": "datum.value ? datum.label : '0'",
    },
    "title": {"anchor": "start", "frame": "group", "color": "var(--ink)", "fontSize": 12, "fontWeight": 600, "offset": 4},
    "text": {"color": "var(--soft)"},
    "concat": {"spacing": 10},
}
