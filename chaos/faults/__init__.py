"""The catalogue of faults, one file each. A fault is registered by naming it here.

Importing this package imports neither Spark nor Kafka: faults reach for them when they strike.
"""

from __future__ import annotations

from chaos.faults.add_partitions import AddPartitions
from chaos.faults.bandwidth import Bandwidth
from chaos.faults.black_hole_kafka import BlackHoleKafka
from chaos.faults.black_hole_postgres import BlackHolePostgres
from chaos.faults.burst import Burst
from chaos.faults.crash_at_step import CrashAtStep
from chaos.faults.cut_kafka import CutKafka
from chaos.faults.cut_postgres import CutPostgres
from chaos.faults.duplicate_at_source import DuplicateAtSource
from chaos.faults.elect_unclean_leader import ElectUncleanLeader
from chaos.faults.exhaust_memory import ExhaustMemory
from chaos.faults.expire_records import ExpireRecords
from chaos.faults.fault import Claim, Fault, Scene
from chaos.faults.fence_transaction import FenceTransaction
from chaos.faults.full_disk import FullDisk
from chaos.faults.kill_driver import KillDriver
from chaos.faults.kill_executor import KillExecutor
from chaos.faults.kill_group_coordinator import KillGroupCoordinator
from chaos.faults.kill_kafka import KillKafka
from chaos.faults.kill_leader import KillLeader
from chaos.faults.kill_master import KillMaster
from chaos.faults.kill_postgres import KillPostgres
from chaos.faults.kill_python_worker import KillPythonWorker
from chaos.faults.kill_transaction_coordinator import KillTransactionCoordinator
from chaos.faults.kill_worker import KillWorker
from chaos.faults.late_records import LateRecords
from chaos.faults.limit_data import LimitData
from chaos.faults.lose_last_commit import LoseLastCommit
from chaos.faults.move_leaders import MoveLeaders
from chaos.faults.network_latency import NetworkLatency
from chaos.faults.pause_executor import PauseExecutor
from chaos.faults.pause_kafka import PauseKafka
from chaos.faults.pause_postgres import PausePostgres
from chaos.faults.pause_worker import PauseWorker
from chaos.faults.recreate_topic import RecreateTopic
from chaos.faults.reset_kafka import ResetKafka
from chaos.faults.skewed_key import SkewedKey
from chaos.faults.slicer import Slicer
from chaos.faults.slow_close import SlowClose
from chaos.faults.stop_kafka import StopKafka
from chaos.faults.stop_postgres import StopPostgres
from chaos.faults.time_out_transaction import TimeOutTransaction

_ALL: tuple[Fault, ...] = (
    KillExecutor(),
    PauseExecutor(),
    KillPythonWorker(),
    ExhaustMemory(),
    KillWorker(),
    PauseWorker(),
    KillMaster(),
    KillDriver(),
    CrashAtStep(),
    LoseLastCommit(),
    FullDisk(),
    NetworkLatency(),
    Bandwidth(),
    Slicer(),
    SlowClose(),
    LimitData(),
    CutKafka(),
    BlackHoleKafka(),
    ResetKafka(),
    PauseKafka(),
    KillKafka(),
    StopKafka(),
    KillLeader(),
    KillTransactionCoordinator(),
    KillGroupCoordinator(),
    MoveLeaders(),
    ElectUncleanLeader(),
    FenceTransaction(),
    TimeOutTransaction(),
    AddPartitions(),
    ExpireRecords(),
    RecreateTopic(),
    CutPostgres(),
    BlackHolePostgres(),
    PausePostgres(),
    KillPostgres(),
    StopPostgres(),
    Burst(),
    SkewedKey(),
    DuplicateAtSource(),
    LateRecords(),
)
FAULTS: dict[str, Fault] = {fault.name: fault for fault in _ALL}

__all__ = ["FAULTS", "Claim", "Fault", "Scene"]
