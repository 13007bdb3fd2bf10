"""How pages are made of templates: what is put in is escaped, and a name that is not given is an error."""

from __future__ import annotations

from pathlib import Path

import jinja2

TEMPLATES = Path(__file__).parent / "templates"


def environment(*folders: Path) -> jinja2.Environment:
    """Templates of these folders, and those that are here."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
