"""Where streamproof keeps what it makes: two folders, both outside version control, and the history of runs.

``STREAMPROOF_HOME`` (default: ``.streamproof`` in the checkout) holds the testbed's state, the runs and Airflow's home.
``STREAMPROOF_CACHE`` (default: ``cache`` in the home) holds what was downloaded or built and can be shared by several homes.
``STREAMPROOF_HISTORY`` (default: ``history.sqlite`` in the home) is the URL of the database that remembers all runs, as SQLAlchemy has it.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def home() -> Path:
    return Path(os.environ.get("STREAMPROOF_HOME") or ROOT / ".streamproof").resolve()


def cache() -> Path:
    return Path(os.environ.get("STREAMPROOF_CACHE") or home() / "cache").resolve()


def python_path() -> str:
    """What a process of a run imports from, as ``PYTHONPATH``: this checkout, then what the caller's own ``PYTHONPATH`` names.

    Relative entries are made absolute, because such a process works in another folder.
    """
    own = [str(Path(entry).resolve()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return os.pathsep.join(dict.fromkeys([str(ROOT), *own]))


def runs() -> Path:
    return home() / "runs"


def history() -> str:
    return os.environ.get("STREAMPROOF_HISTORY") or f"sqlite:///{home() / 'history.sqlite'}"
