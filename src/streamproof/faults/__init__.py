"""The catalogue of faults, one file each. Ours are registered in ``pyproject.toml``, like those of any other package.

Importing this package imports neither Spark nor Kafka: faults reach for them when they are injected.
"""

from __future__ import annotations

from streamproof import registry
from streamproof.faults.fault import Fault

FAULTS: dict[str, Fault] = registry.registered("faults")

__all__ = ["FAULTS", "Fault"]
