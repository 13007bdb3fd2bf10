"""A transactional Kafka producer that takes columns of Arrow, not objects: librdkafka driven by ctypes.

Why: a sink in Python has its rows as Arrow buffers, and librdkafka wants addresses and lengths. ``confluent_kafka.Producer`` stands between
them with several Python objects a row (key, value, call, delivery report), which is most of what such a sink costs. Here numpy computes
every row's addresses from Arrow's offsets at once; a row without headers never exists in Python, one with headers is one foreign call.

The library is the one that the confluent-kafka wheel carries; nothing is compiled. The declarations below were read off ``rdkafka.h`` of
librdkafka 2.15 and hold for every 2.x (its ABI only grows); another major version is refused.

Ownership:
    records      copied by librdkafka within the call (``MSG_F_COPY``): Arrow's buffers are free again when ``produce`` returns.
    configuration, errors, events, lists    whoever gets one destroys it; ``rd_kafka_new`` takes the configuration when it succeeds.
    the client   destroyed by ``close``. That sends nothing: a transaction that is open stays open, for somebody else to finish.

Delivery is counted, not assumed: reports come as events, one for each request that was answered, not one for each record. ``flush``
returns once as many records were acknowledged as were handed over, and raises DeliveryFailed otherwise.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

MAJOR_VERSION = 2
POLL_MS = 100
GRACE_S = 1.0

_PRODUCER = 0
_COPY = 0x2
_ANY_PARTITION = -1
_QUEUE_FULL = -184
_FATAL = -150
_EVENT_DELIVERY = 0x1
_EVENT_ERROR = 0x8
_CONF_OK = 0
_VALUE, _KEY, _MSGFLAGS, _HEADER, _RKT = 4, 5, 7, 9, 2  # rd_kafka_vtype_t
_NOTHING = ctypes.create_string_buffer(1)  # the address of an empty value, which must not be NULL: that would be a tombstone


class KafkaFailed(RuntimeError):
    """librdkafka refused a call or reported a failure. ``code`` is its error code (negative: the library's own), ``retriable`` its word."""

    def __init__(self, what: str, code: int = 0, *, retriable: bool = False) -> None:
        super().__init__(what)
        self.code, self.retriable = code, retriable


class DeliveryFailed(KafkaFailed):
    """Not every record that was handed over is on the broker."""


class Message(ctypes.Structure):
    """``rd_kafka_message_t``; pointers as plain sizes, so that numpy can fill them in."""

    _fields_ = (
        ("err", c_int),
        ("rkt", c_size_t),
        ("partition", c_int32),
        ("payload", c_size_t),
        ("len", c_size_t),
        ("key", c_size_t),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("_private", c_size_t),
    )


class Argument(ctypes.Structure):
    """``rd_kafka_vu_t``, a tagged argument of ``rd_kafka_produceva``: a tag, then a union of 64 bytes.

    ``first`` is a union's lone pointer or integer; ``first, second`` its (address, length); all three its header (name, value, length).
    """

    _fields_ = (
        ("vtype", c_int),
        ("first", c_size_t),
        ("second", c_size_t),
        ("third", c_ssize_t),
        ("_pad", ctypes.c_char * 40),
    )


class _TopicPartition(ctypes.Structure):
    """``rd_kafka_topic_partition_t``."""

    _fields_ = (
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("_private", c_void_p),
    )


MESSAGE = np.dtype(Message)
ARGUMENT = np.dtype(Argument)

_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "rd_kafka_version": (c_int, []),
    "rd_kafka_err2str": (c_char_p, [c_int]),
    "rd_kafka_conf_new": (c_void_p, []),
    "rd_kafka_conf_destroy": (None, [c_void_p]),
    "rd_kafka_conf_set": (c_int, [c_void_p, c_char_p, c_char_p, c_char_p, c_size_t]),
    "rd_kafka_conf_set_events": (None, [c_void_p, c_int]),
    "rd_kafka_new": (c_void_p, [c_int, c_void_p, c_char_p, c_size_t]),
    "rd_kafka_destroy": (None, [c_void_p]),
    "rd_kafka_topic_new": (c_void_p, [c_void_p, c_char_p, c_void_p]),
    "rd_kafka_topic_destroy": (None, [c_void_p]),
    "rd_kafka_metadata": (c_int, [c_void_p, c_int, c_void_p, ctypes.POINTER(c_void_p), c_int]),
    "rd_kafka_metadata_destroy": (None, [c_void_p]),
    "rd_kafka_produce_batch": (c_int, [c_void_p, c_int32, c_int, c_void_p, c_int]),
    "rd_kafka_produceva": (c_void_p, [c_void_p, c_void_p, c_size_t]),
    "rd_kafka_purge": (c_int, [c_void_p, c_int]),
    "rd_kafka_queue_get_main": (c_void_p, [c_void_p]),
    "rd_kafka_queue_destroy": (None, [c_void_p]),
    "rd_kafka_queue_poll": (c_void_p, [c_void_p, c_int]),
    "rd_kafka_event_type": (c_int, [c_void_p]),
    "rd_kafka_event_error": (c_int, [c_void_p]),
    "rd_kafka_event_error_string": (c_char_p, [c_void_p]),
    "rd_kafka_event_message_count": (c_size_t, [c_void_p]),
    "rd_kafka_event_destroy": (None, [c_void_p]),
    "rd_kafka_fatal_error": (c_int, [c_void_p, c_char_p, c_size_t]),
    "rd_kafka_error_code": (c_int, [c_void_p]),
    "rd_kafka_error_string": (c_char_p, [c_void_p]),
    "rd_kafka_error_is_retriable": (c_int, [c_void_p]),
    "rd_kafka_error_destroy": (None, [c_void_p]),
    "rd_kafka_init_transactions": (c_void_p, [c_void_p, c_int]),
    "rd_kafka_begin_transaction": (c_void_p, [c_void_p]),
    "rd_kafka_send_offsets_to_transaction": (c_void_p, [c_void_p, c_void_p, c_void_p, c_int]),
    "rd_kafka_commit_transaction": (c_void_p, [c_void_p, c_int]),
    "rd_kafka_abort_transaction": (c_void_p, [c_void_p, c_int]),
    "rd_kafka_consumer_group_metadata_new": (c_void_p, [c_char_p]),
    "rd_kafka_consumer_group_metadata_destroy": (None, [c_void_p]),
    "rd_kafka_topic_partition_list_new": (c_void_p, [c_int]),
    "rd_kafka_topic_partition_list_add": (ctypes.POINTER(_TopicPartition), [c_void_p, c_char_p, c_int32]),
    "rd_kafka_topic_partition_list_destroy": (None, [c_void_p]),
}


@functools.cache
def library() -> Any:
    """The librdkafka that confluent-kafka loaded, with its functions declared. Raises ImportError naming what is wrong with it."""
    import confluent_kafka

    package = Path(confluent_kafka.__file__).parent
    bundled = [*package.with_name("confluent_kafka.libs").glob("librdkafka*"), *(package / ".dylibs").glob("librdkafka*")]
    if not bundled:
        raise ImportError(f"{package}: this confluent-kafka brings no librdkafka of its own: install its wheel")
    loaded = ctypes.CDLL(str(bundled[0]))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    major = loaded.rd_kafka_version() >> 24
    if major != MAJOR_VERSION or (MESSAGE.itemsize, ARGUMENT.itemsize) != (72, 72):
        raise ImportError(f"{bundled[0].name}: expected librdkafka {MAJOR_VERSION}.x on a 64-bit machine, found major version {major}")
    return loaded


class TransactionalProducer:
    """One Kafka producer with a transactional id. Not for two threads at once. Waits are bounded; what fails raises KafkaFailed.

    ``settings`` are librdkafka's own (``bootstrap.servers``, ``transactional.id``, ...).
    """

    def __init__(self, settings: Mapping[str, str | int]) -> None:
        self._kafka = library()
        self.name = str(settings["transactional.id"])
        self._client = self._queue = None
        self._topics: dict[str, int] = {}
        self._handed_over = self._acknowledged = 0
        self._last_error = "none"
        configuration, reason = self._kafka.rd_kafka_conf_new(), ctypes.create_string_buffer(512)
        for key, value in settings.items():
            if self._kafka.rd_kafka_conf_set(configuration, key.encode(), str(value).encode(), reason, len(reason)) != _CONF_OK:
                self._kafka.rd_kafka_conf_destroy(configuration)
                raise KafkaFailed(f"producer {self.name}: {reason.value.decode()}")
        self._kafka.rd_kafka_conf_set_events(configuration, _EVENT_DELIVERY | _EVENT_ERROR)
        self._client = self._kafka.rd_kafka_new(_PRODUCER, configuration, reason, len(reason))
        if not self._client:
            self._kafka.rd_kafka_conf_destroy(configuration)
            raise KafkaFailed(f"producer {self.name}: {reason.value.decode()}")
        self._queue = self._kafka.rd_kafka_queue_get_main(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the client, at once and without a word to the broker. May be repeated."""
        if self._client is None:
            return
        client, self._client = self._client, None
        for handle in self._topics.values():
            self._kafka.rd_kafka_topic_destroy(handle)
        self._kafka.rd_kafka_purge(client, 0x1 | 0x2)  # queued and in flight, or destroying would wait for them
        self._kafka.rd_kafka_queue_destroy(self._queue)
        self._kafka.rd_kafka_destroy(client)

    # --- the transaction ----------------------------------------------------------------------------------------------------------

    def connect(self, topic: str, timeout_s: float) -> None:
        """Wait for a broker's word on where ``topic`` is. Not needed, but the calls after it need not wait for a connection then."""
        answer = c_void_p()
        code = self._kafka.rd_kafka_metadata(self._client, 0, self._topic(topic), ctypes.byref(answer), _ms(timeout_s))
        if code != 0:
            raise KafkaFailed(f"producer {self.name}: no broker told of topic {topic}: {_text(self._kafka, code)}", code)
        self._kafka.rd_kafka_metadata_destroy(answer)

    def init_transactions(self, timeout_s: float) -> None:
        """Take the transactional id: its last holder is fenced, what it left open is aborted."""
        self._must("initialise transactions", self._kafka.rd_kafka_init_transactions(self._client, _ms(timeout_s)))

    def begin(self) -> None:
        self._must("begin a transaction", self._kafka.rd_kafka_begin_transaction(self._client))

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int], timeout_s: float) -> None:
        """Make the group's offsets, {(topic, partition): next offset to read}, part of the transaction.

        librdkafka does not keep to its time here, and waits for ever when the group's coordinator has died (its issues 5456 and 5511, open
        in 2.16). So it waits on a thread of its own; when that comes to no end in time, the client is given up with it: its memory and
        threads stay until the process ends, its transaction until the next holder of the id aborts it.
        """
        kafka, client, answers = self._kafka, self._client, SimpleQueue[int | None]()

        def send() -> None:
            listed = kafka.rd_kafka_topic_partition_list_new(len(offsets))
            metadata = kafka.rd_kafka_consumer_group_metadata_new(group.encode())
            try:
                for (topic, partition), offset in offsets.items():
                    kafka.rd_kafka_topic_partition_list_add(listed, topic.encode(), partition).contents.offset = offset
                answers.put(kafka.rd_kafka_send_offsets_to_transaction(client, listed, metadata, _ms(timeout_s)))
            finally:
                kafka.rd_kafka_consumer_group_metadata_destroy(metadata)
                kafka.rd_kafka_topic_partition_list_destroy(listed)

        threading.Thread(target=send, name=f"offsets-of-{self.name}", daemon=True).start()
        try:
            error = answers.get(timeout=timeout_s + GRACE_S)
        except Empty:
            self._client = None
            raise KafkaFailed(f"producer {self.name} could not send the offsets of {group}: no answer within {timeout_s:.0f} s") from None
        self._must(f"send the offsets of {group}", error)

    def commit(self, timeout_s: float) -> None:
        """Everything on the broker, then commit."""
        deadline = time.monotonic() + timeout_s
        self.flush(timeout_s)
        left = max(deadline - time.monotonic(), 0.001)
        self._must("commit", self._kafka.rd_kafka_commit_transaction(self._client, _ms(left)))

    def abort(self, timeout_s: float) -> None:
        """Abort; what is not sent yet never will be. Its reports are read meanwhile, which librdkafka waits for."""
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self._kafka.rd_kafka_abort_transaction, self._client, _ms(timeout_s))
            while not answer.done():
                self._serve(POLL_MS // 10, count=False)
        self._handed_over = self._acknowledged = 0
        self._must("abort", answer.result())

    # --- records ------------------------------------------------------------------------------------------------------------------

    def produce(self, topic: str, keys: pa.Array, values: pa.Array, headers: Sequence[tuple[str, bytes]], timeout_s: float) -> None:
        """Hand a batch of records over; the partitioner chooses by the key. While librdkafka's queue is full it waits, up to ``timeout_s``.

        ``keys`` and ``values`` are Arrow arrays of binary or string; null is Kafka's null. Every record gets the same ``headers``.
        """
        if len(keys) != len(values):
            raise ValueError(f"expected as many keys as values, found {len(keys)} and {len(values)}")
        handle, deadline, done = self._topic(topic), time.monotonic() + timeout_s, 0
        enqueue = _Batch(self._kafka, self._client, handle, keys, values, headers)
        while True:
            sent = enqueue.some(done)
            done += sent
            self._handed_over += sent
            self._serve(0)
            if done == len(values):
                return
            if time.monotonic() > deadline:
                raise KafkaFailed(f"producer {self.name}: its queue was full for {timeout_s:.0f} s (last error: {self._last_error})")
            self._serve(POLL_MS)

    def flush(self, timeout_s: float) -> None:
        """Wait until every record is on the broker. Raises DeliveryFailed when one is refused, or not acknowledged in time."""
        deadline = time.monotonic() + timeout_s
        self._serve(0)
        while self._acknowledged < self._handed_over:
            if time.monotonic() > deadline:
                raise DeliveryFailed(
                    f"producer {self.name}: {self._handed_over - self._acknowledged} of {self._handed_over} records were not accepted by "
                    f"Kafka within {timeout_s:.0f} s (last error: {self._last_error})"
                )
            self._serve(POLL_MS)

    def _topic(self, name: str) -> int:
        if name not in self._topics:
            handle = self._kafka.rd_kafka_topic_new(self._client, name.encode(), None)
            if not handle:
                raise KafkaFailed(f"producer {self.name}: topic {name} is refused")
            self._topics[name] = handle
        return self._topics[name]

    def _serve(self, wait_ms: int, *, count: bool = True) -> None:
        """Read what happened, waiting at most ``wait_ms`` for the first of it. Raises DeliveryFailed unless ``count`` is false."""
        kafka, failure = self._kafka, None
        while event := kafka.rd_kafka_queue_poll(self._queue, wait_ms):
            wait_ms, kind, code = 0, kafka.rd_kafka_event_type(event), kafka.rd_kafka_event_error(event)
            if kind == _EVENT_DELIVERY and code == 0:
                self._acknowledged += kafka.rd_kafka_event_message_count(event)
            elif kind == _EVENT_DELIVERY:
                failure = (f"{kafka.rd_kafka_event_message_count(event)} records were refused", code)
            elif kind == _EVENT_ERROR:
                self._last_error = kafka.rd_kafka_event_error_string(event).decode()
                if code == _FATAL:
                    failure = (self._last_error, code)
            kafka.rd_kafka_event_destroy(event)
        if failure is not None and count:
            what, code = failure
            raise DeliveryFailed(f"producer {self.name}: {what}: {_text(kafka, code)} (last error: {self._last_error})", code)

    def _must(self, what: str, error: int | None) -> None:
        if error is None:
            return
        code, text = self._kafka.rd_kafka_error_code(error), self._kafka.rd_kafka_error_string(error).decode()
        retriable = bool(self._kafka.rd_kafka_error_is_retriable(error))
        self._kafka.rd_kafka_error_destroy(error)
        raise KafkaFailed(f"producer {self.name} could not {what}: {text} ({code})", code, retriable=retriable)


class _Batch:
    """A batch of records as librdkafka's structures, and the call that enqueues them from any row on. The arrays must outlive it."""

    def __init__(self, kafka: Any, client: Any, topic: int, keys: pa.Array, values: pa.Array, headers: Sequence[tuple[str, bytes]]) -> None:
        self._kafka, self._client, self._topic = kafka, client, topic
        self._keep = [(c_char_p(name.encode()), c_char_p(value), len(value)) for name, value in headers]  # librdkafka copies them
        self._width = 4 + len(headers) if headers else 0
        key, key_size = addresses(keys)
        value, value_size = addresses(values)
        if not headers:
            self._messages = np.zeros(len(values), MESSAGE)
            self._messages["payload"], self._messages["len"] = value, value_size
            self._messages["key"], self._messages["key_len"] = key, key_size
            return
        self._messages = np.zeros((len(values), self._width), ARGUMENT)
        self._messages["vtype"][:, :4] = (_RKT, _MSGFLAGS, _VALUE, _KEY)
        self._messages["first"][:, 0] = topic
        self._messages["first"][:, 1] = _COPY
        self._messages["first"][:, 2], self._messages["second"][:, 2] = value, value_size
        self._messages["first"][:, 3], self._messages["second"][:, 3] = key, key_size
        for column, (name, content, size) in enumerate(self._keep, start=4):
            self._messages["vtype"][:, column] = _HEADER
            self._messages["first"][:, column] = ctypes.cast(name, c_void_p).value
            self._messages["second"][:, column] = ctypes.cast(content, c_void_p).value
            self._messages["third"][:, column] = size

    def some(self, start: int) -> int:
        """Enqueue the rows from ``start`` on. Returns how many were taken: fewer when the queue is full. Raises on any other refusal."""
        return self._with_headers(start) if self._width else self._without_headers(start)

    def _without_headers(self, start: int) -> int:
        rows = self._messages[start:]
        taken = int(self._kafka.rd_kafka_produce_batch(self._topic, _ANY_PARTITION, _COPY, rows.ctypes.data, len(rows)))
        if taken < len(rows):
            refused = rows["err"][rows["err"] != 0]
            other = refused[refused != _QUEUE_FULL]
            if len(other):
                raise KafkaFailed(f"{len(other)} records were refused: {_text(self._kafka, int(other[0]))}", int(other[0]))
        return taken

    def _with_headers(self, start: int) -> int:
        produce, client, width = self._kafka.rd_kafka_produceva, self._client, self._width
        step = width * ARGUMENT.itemsize
        first, end = self._messages.ctypes.data + start * step, self._messages.ctypes.data + len(self._messages) * step
        for at in range(first, end, step):
            error = produce(client, at, width)
            if error is not None:
                code, text = self._kafka.rd_kafka_error_code(error), self._kafka.rd_kafka_error_string(error).decode()
                self._kafka.rd_kafka_error_destroy(error)
                if code != _QUEUE_FULL:
                    raise KafkaFailed(f"a record was refused: {text}", code)
                return (at - first) // step
        return len(self._messages) - start


def addresses(array: pa.Array) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Where each element of a binary or string array lies in memory, and its length; (0, 0) is null. Valid while the array lives."""
    import pyarrow as pa

    if pa.types.is_binary(array.type) or pa.types.is_string(array.type):
        width: Any = np.int32
    elif pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type):
        width = np.int64
    else:
        raise TypeError(f"expected binary or string, found {array.type}")
    if len(array) == 0:
        return np.zeros(0, np.uintp), np.zeros(0, np.uintp)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    sizes = np.diff(ends).astype(np.uintp)
    base = data.address if data is not None and data.size else ctypes.addressof(_NOTHING)
    places = (ends[:-1] + base).astype(np.uintp)
    if array.null_count:
        missing = array.is_null().to_numpy(zero_copy_only=False)
        places[missing] = 0
        sizes[missing] = 0
    return places, sizes


def _text(kafka: Any, code: int) -> str:
    return f"{kafka.rd_kafka_err2str(code).decode()} ({code})"


def _ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))
