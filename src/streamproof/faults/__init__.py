"""The catalogue of faults, one file each. A fault is registered by naming it here.

Importing this package imports neither Spark nor Kafka: faults reach for them when they strike.
"""

from __future__ import annotations

from streamproof.faults.fault import Claim, Fault, Scene
from streamproof.faults.kafka.add_partitions import AddPartitions
from streamproof.faults.kafka.elect_unclean_leader import ElectUncleanLeader
from streamproof.faults.kafka.expire_records import ExpireRecords
from streamproof.faults.kafka.fence_transaction import FenceTransaction
from streamproof.faults.kafka.kill_group_coordinator import KillGroupCoordinator
from streamproof.faults.kafka.kill_kafka import KillKafka
from streamproof.faults.kafka.kill_leader import KillLeader
from streamproof.faults.kafka.kill_transaction_coordinator import KillTransactionCoordinator
from streamproof.faults.kafka.move_leaders import MoveLeaders
from streamproof.faults.kafka.pause_kafka import PauseKafka
from streamproof.faults.kafka.recreate_topic import RecreateTopic
from streamproof.faults.kafka.stop_kafka import StopKafka
from streamproof.faults.kafka.time_out_transaction import TimeOutTransaction
from streamproof.faults.network.bandwidth import Bandwidth
from streamproof.faults.network.black_hole_kafka import BlackHoleKafka
from streamproof.faults.network.black_hole_postgres import BlackHolePostgres
from streamproof.faults.network.cut_kafka import CutKafka
from streamproof.faults.network.cut_postgres import CutPostgres
from streamproof.faults.network.limit_data import LimitData
from streamproof.faults.network.network_latency import NetworkLatency
from streamproof.faults.network.reset_kafka import ResetKafka
from streamproof.faults.network.slicer import Slicer
from streamproof.faults.network.slow_close import SlowClose
from streamproof.faults.postgres.kill_postgres import KillPostgres
from streamproof.faults.postgres.pause_postgres import PausePostgres
from streamproof.faults.postgres.stop_postgres import StopPostgres
from streamproof.faults.process.crash_at_step import CrashAtStep
from streamproof.faults.process.exhaust_memory import ExhaustMemory
from streamproof.faults.process.kill_driver import KillDriver
from streamproof.faults.process.kill_python_worker import KillPythonWorker
from streamproof.faults.source.burst import Burst
from streamproof.faults.source.duplicate_at_source import DuplicateAtSource
from streamproof.faults.source.late_records import LateRecords
from streamproof.faults.source.skewed_key import SkewedKey
from streamproof.faults.spark.kill_executor import KillExecutor
from streamproof.faults.spark.kill_master import KillMaster
from streamproof.faults.spark.kill_worker import KillWorker
from streamproof.faults.spark.lose_last_commit import LoseLastCommit
from streamproof.faults.spark.pause_executor import PauseExecutor
from streamproof.faults.spark.pause_worker import PauseWorker
from streamproof.faults.storage.full_disk import FullDisk

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
