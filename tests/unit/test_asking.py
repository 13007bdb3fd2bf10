"""A question to Kafka is asked again while its error is one that passes, and no longer; an order is carried out once."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka import errors

from streamproof.kafka.asking import RETRIABLE, TOPIC_ALREADY_EXISTS, UNANSWERED, asked, code_of, ordered, passes, retriable

PATIENCE_S = 20.0
LASTING = sorted(
    value for name, value in vars(KafkaError).items() if isinstance(value, int) and not retriable(value) and value != KafkaError.NO_ERROR
)
BY_KAFKA_PYTHON = [error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, errors.KafkaError)]


def _refused(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


class Broker:
    """Answers 7, after it has raised each of these errors once."""

    def __init__(self, *refusals: Exception) -> None:
        self._refusals, self.questions = list(refusals), 0

    def __call__(self) -> int:
        self.questions += 1
        if self._refusals:
            raise self._refusals.pop(0)
        return 7


@pytest.mark.parametrize("code", [*RETRIABLE, *UNANSWERED])
def test_a_question_whose_error_passes_is_asked_again(code: int) -> None:
    broker = Broker(_refused(code), _refused(code))
    assert (asked(broker, PATIENCE_S), broker.questions) == (7, 3)


@pytest.mark.parametrize("code", LASTING)
def test_a_question_whose_error_lasts_is_asked_once(code: int) -> None:
    broker = Broker(_refused(code))
    with pytest.raises(KafkaException):
        asked(broker, PATIENCE_S)
    assert broker.questions == 1


def test_the_errors_that_last_are_most_of_them() -> None:
    assert {KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError.UNKNOWN, KafkaError._PARTITION_EOF} < set(LASTING)
    assert len(LASTING) > 100


@pytest.mark.parametrize("error", BY_KAFKA_PYTHON, ids=lambda error: error.__name__)
def test_what_kafka_python_calls_retriable_is_asked_again(error: type[errors.KafkaError]) -> None:
    code = getattr(error, "errno", None)
    assert passes(error.__new__(error)) == (error.retriable or code in RETRIABLE)


def test_no_error_that_kafka_python_calls_retriable_is_left_out() -> None:
    assert {error.errno for error in BY_KAFKA_PYTHON if error.retriable and hasattr(error, "errno")} - set(RETRIABLE) == set()


def test_what_is_not_kafkas_is_asked_again_only_when_it_took_too_long() -> None:
    assert asked(Broker(TimeoutError("no answer")), PATIENCE_S) == 7
    for error in (KeyError("topic"), OSError(78, "no such thing in Kafka's list"), ValueError()):
        with pytest.raises(type(error)):
            asked(Broker(error), PATIENCE_S)


def test_an_error_that_the_caller_names_is_asked_again_too() -> None:
    assert not passes(errors.UnknownBrokerIdError(3))
    assert asked(Broker(errors.UnknownBrokerIdError(3)), PATIENCE_S, also=(errors.UnknownBrokerIdError,)) == 7


def test_patience_has_an_end_and_the_last_error_is_told() -> None:
    def never() -> int:
        raise _refused(KafkaError.OFFSET_NOT_AVAILABLE)

    begun = time.monotonic()
    with pytest.raises(KafkaException) as raised:
        asked(never, 0.3)
    assert 0.3 <= time.monotonic() - begun < 5
    assert code_of(raised.value) == KafkaError.OFFSET_NOT_AVAILABLE


# --- orders -------------------------------------------------------------------------------------------------------------------------


class Topics:
    """Makes a topic once. The answers to the first orders are lost, before or after it is made."""

    def __init__(self, *, made: bool = False, losses: int = 0, lost_before: bool = False) -> None:
        self.made, self._losses, self._lost_before = made, losses, lost_before

    def create(self) -> None:
        lost, self._losses = self._losses > 0, self._losses - 1
        if not (lost and self._lost_before):
            if self.made:
                raise _refused(TOPIC_ALREADY_EXISTS)
            self.made = True
        if lost:
            raise _refused(KafkaError._TIMED_OUT)


@pytest.mark.parametrize("lost_before", [True, False])
@pytest.mark.parametrize("losses", [0, 1])
def test_an_order_whose_answer_was_lost_is_carried_out_once(losses: int, lost_before: bool) -> None:
    topics = Topics(losses=losses, lost_before=lost_before)
    ordered(topics.create, PATIENCE_S, done=TOPIC_ALREADY_EXISTS)
    assert topics.made


def test_what_was_there_before_the_order_is_an_error() -> None:
    with pytest.raises(KafkaException) as raised:
        ordered(Topics(made=True).create, PATIENCE_S, done=TOPIC_ALREADY_EXISTS)
    assert code_of(raised.value) == TOPIC_ALREADY_EXISTS


def test_an_order_that_is_refused_for_good_is_given_once() -> None:
    broker = Broker(_refused(KafkaError.INVALID_PARTITIONS))
    with pytest.raises(KafkaException):
        ordered(broker, PATIENCE_S, done=TOPIC_ALREADY_EXISTS)
    assert broker.questions == 1
