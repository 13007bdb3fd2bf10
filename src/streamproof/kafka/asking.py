"""Asking Kafka again: which of its errors are over in a moment, and how a question is repeated until then.

Whoever asks Kafka while brokers die, come back and hand partitions on is refused now and then, for a moment. Kafka says itself which errors
those are. They are listed here, once, for all who ask; no client of Kafka is imported. kafka-python has the same list but for three errors,
as attributes of its classes; confluent-kafka says of an error whether it is retriable only where a transaction fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")

POLL_S = 0.05
UNKNOWN_TOPIC_OR_PARTITION = 3
COORDINATOR_NOT_AVAILABLE = 15
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
ELECTION_NOT_NEEDED = 84

# Those that Kafka calls retriable, by their numbers in its protocol; a test compares them with what the brokers' own jar says.
RETRIABLE = {
    2: "CORRUPT_MESSAGE",
    UNKNOWN_TOPIC_OR_PARTITION: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    9: "REPLICA_NOT_AVAILABLE",
    13: "NETWORK_EXCEPTION",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    COORDINATOR_NOT_AVAILABLE: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    19: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    41: "NOT_CONTROLLER",
    51: "CONCURRENT_TRANSACTIONS",
    56: "KAFKA_STORAGE_ERROR",
    70: "FETCH_SESSION_ID_NOT_FOUND",
    71: "INVALID_FETCH_SESSION_EPOCH",
    72: "LISTENER_NOT_FOUND",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    78: "OFFSET_NOT_AVAILABLE",
    80: "PREFERRED_LEADER_NOT_AVAILABLE",
    83: "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    ELECTION_NOT_NEEDED: "ELECTION_NOT_NEEDED",
    88: "UNSTABLE_OFFSET_COMMIT",
    89: "THROTTLING_QUOTA_EXCEEDED",
    100: "UNKNOWN_TOPIC_ID",
    103: "INCONSISTENT_TOPIC_ID",
    106: "FETCH_SESSION_TOPIC_ID_ERROR",
    122: "SHARE_SESSION_NOT_FOUND",
    123: "INVALID_SHARE_SESSION_EPOCH",
    133: "SHARE_SESSION_LIMIT_REACHED",
}

# librdkafka's own, which are negative: no broker answered, or the client does not know yet whom to ask.
UNANSWERED = {
    -195: "_TRANSPORT",
    -190: "_UNKNOWN_PARTITION",
    -187: "_ALL_BROKERS_DOWN",
    -185: "_TIMED_OUT",
    -180: "_WAIT_COORD",
    -166: "_TIMED_OUT_QUEUE",
    -164: "_WAIT_CACHE",
    -153: "_RETRY",
    -137: "_DESTROY_BROKER",
}


def retriable(code: int) -> bool:
    """Whether an error is over in a moment, by its number: Kafka's own, or librdkafka's."""
    return code in RETRIABLE or code in UNANSWERED


def code_of(error: BaseException) -> int | None:
    """The number of the error that a client of Kafka raised: of confluent-kafka's exceptions, and of kafka-python's."""
    if isinstance(error, OSError):  # its numbers are the system's
        return None
    coded = getattr(error.args[0] if error.args else None, "code", None)
    code = coded() if callable(coded) else getattr(error, "errno", None)
    return code if isinstance(code, int) else None


def passes(error: BaseException) -> bool:
    """Whether what a client of Kafka raised is over in a moment: nobody answered in time, or what was answered is retriable."""
    if isinstance(error, TimeoutError) or getattr(error, "retriable", False) is True:  # the latter by kafka-python's own word
        return True
    code = code_of(error)
    return code is not None and retriable(code)


def asked(question: Callable[[], Answer], patience_s: float, *, also: tuple[type[BaseException], ...] = ()) -> Answer:
    """The answer to ``question``, which is asked again while its error passes, or is one of ``also``.

    Once ``patience_s`` are over it is not asked again: the last error is raised. One that does not pass is raised at once. What is asked
    must be harmless to ask twice; for what is not, see :func:`ordered`.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return question()
        except Exception as error:
            if not (passes(error) or isinstance(error, also)) or time.monotonic() >= deadline:
                raise
        time.sleep(POLL_S)


def ordered(order: Callable[[], object], patience_s: float, *, done: int) -> None:
    """Have an order carried out that can be carried out once, with the patience of :func:`asked`.

    Whoever got no answer does not know whether it was carried out. So when it is repeated, the error ``done`` says that it was.
    """
    repeated = False

    def once() -> None:
        nonlocal repeated
        try:
            order()
        except Exception as error:
            if not (repeated and code_of(error) == done):
                repeated = True
                raise

    asked(once, patience_s)
