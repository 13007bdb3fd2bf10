"""Where streamproof keeps what it makes, and which project it works for.

``STREAMPROOF_PROJECT`` is the folder of the user's project. Default: the nearest folder, from the working folder upwards, that holds a file
``streamproof.toml``; without one, the working folder. A project has ``chaos/`` (experiments), ``dags/``, ``pipelines/``, ``expectations/``.
``STREAMPROOF_HOME`` (default: ``.streamproof`` in the project) holds the testbed's state, the runs and Airflow's home.
``STREAMPROOF_CACHE`` (default: ``cache`` in the home) holds what was downloaded or built and can be shared by several homes.
``STREAMPROOF_HISTORY`` (default: ``history.sqlite`` in the home) is the URL of the database that remembers all runs, as SQLAlchemy has it.

A process that is started for a run works in another folder: :func:`environment` gives it the same answers.
"""

from __future__ import annotations

import os
from pathlib import Path

MARKER = "streamproof.toml"
PACKAGE = Path(__file__).resolve().parent


def project() -> Path:
    """The folder of the user's project."""
    configured = os.environ.get("STREAMPROOF_PROJECT")
    if configured:
        return Path(configured).resolve()
    here = Path.cwd().resolve()
    return next((folder for folder in (here, *here.parents) if (folder / MARKER).is_file()), here)


def home() -> Path:
    return Path(os.environ.get("STREAMPROOF_HOME") or project() / ".streamproof").resolve()


def cache() -> Path:
    return Path(os.environ.get("STREAMPROOF_CACHE") or home() / "cache").resolve()


def runs() -> Path:
    return home() / "runs"


def history() -> str:
    return os.environ.get("STREAMPROOF_HISTORY") or f"sqlite:///{home() / 'history.sqlite'}"


def experiments() -> Path:
    """The project's experiments, which are the presets of the form too."""
    return project() / "chaos"


def python_path() -> str:
    """What a process of a run imports from, as ``PYTHONPATH``: the project, so that it finds the project's own pipelines and strategies,
    then what the caller's own ``PYTHONPATH`` names.

    Relative entries are made absolute, because such a process works in another folder.
    """
    own = [str(Path(entry).resolve()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return os.pathsep.join(dict.fromkeys([str(project()), *own]))


def environment() -> dict[str, str]:
    """This process's environment with the answers of this module spelled out: for every process that is started for a run."""
    answers = {"STREAMPROOF_PROJECT": project(), "STREAMPROOF_HOME": home(), "STREAMPROOF_CACHE": cache()}
    return {**os.environ, **{name: str(folder) for name, folder in answers.items()}}
