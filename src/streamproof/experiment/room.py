"""How much of the workload faults take up: a fault is injected while there are records left that can show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamproof.faults import FAULTS

LATEST_IMPACT_SHARE = 0.95
LOOKAHEAD_BATCHES = 2


@dataclass(frozen=True)
class Room:
    """A workload as faults see it: ``records`` in micro-batches of ``batch_records``, and what passes between two faults."""

    records: int
    batch_records: int
    quiet: float | str

    def share(self, fault: str, parameters: dict[str, Any]) -> float:
        """The share of the records that must still come after the fault was injected, for its evidence."""
        definition = FAULTS[fault]
        return definition.batches(definition.parameters_model.model_validate(parameters)) * self.batch_share

    @property
    def batch_share(self) -> float:
        return self.batch_records / self.records

    @property
    def quiet_share(self) -> float:
        """What a quiet takes: in one that is a time, the job reads only what was sent ahead of it."""
        return self.quiet if self.quiet_s == 0 else LOOKAHEAD_BATCHES * self.batch_share  # type: ignore[return-value]

    @property
    def quiet_s(self) -> float:
        """How long a quiet lasts that is a time, in s; 0 for one that is a share."""
        return float(self.quiet[:-1]) if isinstance(self.quiet, str) else 0.0
