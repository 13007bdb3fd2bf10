"""Faults by which Kafka forgets what it has acknowledged of the output. No job can make up for that: the run FAILS with LOST, as it must.

They are for jobs that write to Kafka at least once: the end of a transaction may be among what is forgotten, and then nobody can read on.
"""

from __future__ import annotations

import random
from typing import Any

from streamproof.faults.fault import Parameters, Unconditional
from streamproof.jobs.profile import JobProfile, Trait
from streamproof.verdict.guarantee import Guarantee


class Forgotten(Unconditional):
    """What these faults share. None is drawn by chance: a random schedule is one that a job has to survive."""

    name: str
    parameters_model = Parameters

    def check(self, profile: JobProfile, parameters: dict[str, Any]) -> None:
        in_transactions = Trait.KAFKA_TRANSACTIONS in profile.traits
        if profile.sink != "kafka" or in_transactions or profile.guarantee is not Guarantee.AT_LEAST_ONCE:
            raise ValueError(f"{self.name}: a job with {profile.name!r} does not write to Kafka at least once and without transactions")

    def draw(self, rng: random.Random, profile: JobProfile) -> dict[str, Any] | None:
        return None
