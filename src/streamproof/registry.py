"""What can be added to streamproof: faults, engines, sinks, strategies, pipelines. Ours are registered like anyone's.

An installed package registers by entry points: the group is ``streamproof.faults``, ``streamproof.engines``, ``streamproof.sinks``,
``streamproof.strategies`` or ``streamproof.pipelines``, the entry names a class without parameters or an object. A project registers its
own in ``streamproof.toml``::

    [strategies]
    foreach_batch = "pipelines.foreach_batch:ForeachBatch"

and a variable of the environment for one run: ``STREAMPROOF_STRATEGIES=package.module:Class``, several with commas between. Such modules
are imported from the project's folder, which is put behind everything else on the import path for that.
"""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from streamproof import settings
from streamproof.errors import BadInput

PREFIX = "streamproof."


@cache
def registered(group: str) -> dict[str, Any]:
    """All that is registered in a group, by the name that each gives itself: ours and those of other packages, then the project's.

    Raises BadInput naming the entry that cannot be used, or two that have the same name.
    """
    own = [*_of_project(group), *_of_environment(group)]
    return _by_name(group, [*_of_packages(group), *((f"{value} ({where})", _loader(value)) for where, value in own)])


def installed(group: str) -> dict[str, Any]:
    """What installed packages register in a group, without what the project and the environment add."""
    return _by_name(group, _of_packages(group))


def _of_packages(group: str) -> list[tuple[str, Callable[[], Any]]]:
    entries = sorted(entry_points(group=PREFIX + group), key=_ours_first)
    return [(f"{entry.value} (package {_package(entry)})", entry.load) for entry in entries]


def _by_name(group: str, entries: list[tuple[str, Callable[[], Any]]]) -> dict[str, Any]:
    items: dict[str, Any] = {}
    for where, load in entries:
        item = _object(where, load)
        if item.name in items:
            raise BadInput(f"{group}: {item.name!r} is registered twice, the second time by {where}: rename or remove one")
        items[item.name] = item
    return items


def _ours_first(entry: EntryPoint) -> tuple[bool, str, str]:
    return not entry.value.startswith(PREFIX), entry.value.partition(":")[0].rpartition(".")[0], entry.name


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "unknown"


def _object(where: str, load: Callable[[], Any]) -> Any:
    try:
        loaded = load()
        return loaded() if isinstance(loaded, type) else loaded
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise BadInput(f"{where} cannot be loaded: {error}; expected module:Class, a class without parameters") from error


def _of_environment(group: str) -> list[tuple[str, str]]:
    """What the environment registers."""
    variable = f"STREAMPROOF_{group.upper()}"
    return [(variable, value) for part in os.environ.get(variable, "").split(",") if (value := part.strip())]


def _of_project(group: str) -> list[tuple[str, str]]:
    """What the project's ``streamproof.toml`` registers. Raises BadInput when it cannot be read."""
    path = settings.project() / settings.MARKER
    try:
        stored = tomllib.loads(path.read_text()).get(group, {})
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    if not isinstance(stored, dict) or not all(isinstance(value, str) and ":" in value for value in stored.values()):
        raise BadInput(f'{path}: [{group}]: expected lines like name = "module:Class", came {stored!r}')
    return [(settings.MARKER, value) for value in stored.values()]


def _loader(value: str) -> Callable[[], Any]:
    def load() -> Any:
        folder = str(settings.project())
        if folder not in sys.path:
            sys.path.append(folder)
        module, _, name = value.partition(":")
        return getattr(importlib.import_module(module), name)

    return load
