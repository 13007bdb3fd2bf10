"""The catalogue of faults, one file each. A fault is registered by naming it here.

Importing this package imports neither Spark nor Kafka: faults reach for them when they strike.
"""

from __future__ import annotations

from chaos.faults.add_partitions import AddPartitions
from chaos.faults.crash_at_step import CrashAtStep
from chaos.faults.fault import Claim, Fault, Scene
from chaos.faults.kill_executor import KillExecutor
from chaos.faults.network_latency import NetworkLatency

_ALL: tuple[Fault, ...] = (KillExecutor(), NetworkLatency(), AddPartitions(), CrashAtStep())
FAULTS: dict[str, Fault] = {fault.name: fault for fault in _ALL}

__all__ = ["FAULTS", "Claim", "Fault", "Scene"]
