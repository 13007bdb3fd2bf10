"""The second judge reads the output by itself: it judges by raw keys and values, and tells on a drain that read something else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamproof.evidence import histories, identity, manifest
from streamproof.evidence.folder import RunFolder, write_atomically
from streamproof.evidence.outcome import Outcome
from streamproof.evidence.payloads import PAYLOADS, write_payloads
from streamproof.load.placing import sha256 as _sha256
from streamproof.run.stages import suite_spec
from streamproof.sinks.files.folder import ListedFiles
from streamproof.sinks.second_reading import read_again
from streamproof.suites import agreement
from streamproof.testbed.embedded import Testbed
from streamproof.verdict.judge import judge
from streamproof.verdict.verdict import Verdict
from tests.support.histories import SPEC, Story, just_before_its_batch_ended, sent_times
from tests.support.jobs import spark_job

COUNT = 60
Row = dict[str, Any]


def _payload(number: int) -> bytes:
    return b'{"n":%d,"name":"\xc3\xa4"}' % number if number else b""


def _rows() -> list[Row]:
    """The output of a job that passes records on, as a plain client reads it."""
    return [_row(number, b"k%d" % (number % 7)) for number in range(COUNT)]


def _row(number: int, key: bytes) -> Row:
    value = identity.encode(0, number, _payload(number), key)[:-1] + b',"source":{"partition":%d,"offset":%d}}' % (number % 3, number // 3)
    written = just_before_its_batch_ended(number)
    place = {"partition": number % 3, "offset": number // 3, "batch": number // 15, "attempt": 0, "start": 1}
    return {**place, "delivered_at": written, "key": key, "value": value}


def _write(path: Path, drained: list[Row], reread: list[Row] | None, *, sha256: bool = True) -> RunFolder:
    """A run whose drain read the rows ``drained``, and whose second reader read ``reread``."""
    folder = Story().write(path)
    sends = []
    for number, sent_at in enumerate(sent_times(COUNT)):
        key = b"k%d" % (number % 7)
        crc, digest = identity.checksum(key, _payload(number)), _sha256(key, _payload(number)) if sha256 else None
        sends.append(histories.SentRow(0, number, number % 3, number // 3, key.decode(), crc, sent_at, Outcome.ACKED, digest))
    histories.write_sent(folder.sent / "00000.parquet", sends)
    histories.write_delivered(folder.delivered / "00000.parquet", _columns(drained))
    if reread is not None:
        folder.delivered_again.mkdir()
        write_payloads(folder.delivered_again, 0, {name: [row[name] for row in reread] for name in PAYLOADS.names})
    _seal(folder)
    return folder


def _seal(folder: RunFolder) -> None:
    """The drain and the manifest say what the files hold now."""
    rows = [row for path in histories.files(folder.delivered) for row in pq.read_table(path, columns=["partition", "offset"]).to_pylist()]
    ends: dict[str, int] = {}
    for row in rows:
        ends[str(row["partition"])] = max(ends.get(str(row["partition"]), 0), row["offset"] + 1)
    drained = {**folder.read_json(folder.drain), "records": len(rows), "end_offsets": ends}
    write_atomically(folder.drain, json.dumps(drained))
    manifest.write(folder)


def _columns(rows: list[Row]) -> dict[str, list[Any]]:
    found = [identity.decode(row["value"], row["key"]) for row in rows]
    return {
        "producer": [one and one.producer for one in found],
        "sequence": [one and one.sequence for one in found],
        "crc": [one.crc if one and one.intact else None for one in found],
        **{name: [row[name] for row in rows] for name in histories.DELIVERED.names if name in rows[0]},
    }


def _judged(folder: RunFolder) -> tuple[Verdict, str | None]:
    judgement = judge(folder, SPEC)
    return judgement.verdict, agreement.check(folder, suite_spec(SPEC), judgement.table)


@pytest.mark.parametrize("sha256", [True, False])
def test_two_readers_who_read_the_same_agree(sha256: bool, tmp_path: Path) -> None:
    verdict, conflict = _judged(_write(tmp_path / "run", _rows(), _rows(), sha256=sha256))
    assert (verdict.outcome, conflict) == ("PASSED", None), verdict.reason


DAMAGED: dict[str, Callable[[Row], Row]] = {
    "a cut tail": lambda row: {**row, "value": row["value"][:-1]},
    "garbage behind it": lambda row: {**row, "value": row["value"] + b"x"},
    "a second payload": lambda row: {**row, "value": row["value"][:-1] + b',"payload":{}}'},
    "a second identity": lambda row: {**row, "value": row["value"][:-1] + b',"\\u0069d":1}'},
    "another key": lambda row: {**row, "key": b"k"},
    "no key": lambda row: {**row, "key": None},
    "another payload": lambda row: {**row, "value": row["value"].replace(b'"n":', b'"m":')},
    "no identity": lambda row: {**row, "value": b"{" + row["value"]},
    "bytes that are no text": lambda row: {**row, "value": b"\xff\x00"},
    "nothing": lambda row: {**row, "value": b""},
    "a tombstone": lambda row: {**row, "value": None},
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_both_judges_find_damage_in_what_was_delivered(damage: str, tmp_path: Path) -> None:
    rows = _rows()
    rows[17] = DAMAGED[damage](rows[17])
    verdict, conflict = _judged(_write(tmp_path / "run", rows, rows))
    assert (verdict.outcome, conflict) == ("FAILED", None)
    assert verdict.anomalies["CORRUPTED"] == 1


def test_a_forged_checksum_is_seen_by_the_second_judge(tmp_path: Path) -> None:
    """Four bytes more make any payload's crc32 what it should be; not its sha256."""
    rows = _rows()
    forged = rows[17]["value"].replace(b'"n":17', b'"n":18')
    length, crc = (int(forged[at : at + 8], 16) for at in (25, 34))
    payload = _forge(forged[identity.PREFIX_LENGTH : identity.PREFIX_LENGTH + length], rows[17]["key"], crc)
    rows[17]["value"] = forged[: identity.PREFIX_LENGTH] + payload + forged[identity.PREFIX_LENGTH + length :]
    found = identity.decode(rows[17]["value"], rows[17]["key"])
    assert found is not None
    assert found.intact
    verdict, conflict = _judged(_write(tmp_path / "run", rows, rows))
    assert verdict.outcome == "PASSED"
    assert conflict == "the checkers and the expectation suites do not agree: only the expectation suites name CORRUPTED 0/17"


def _forge(payload: bytes, key: bytes, crc: int) -> bytes:
    """The payload with its last four bytes changed so that it has this checksum: each bit of them moves the checksum on its own."""
    begin = payload[:-4]
    zero = identity.checksum(key, begin + bytes(4))
    moves = [(identity.checksum(key, begin + (1 << bit).to_bytes(4, "little")) ^ zero, 1 << bit) for bit in range(32)]
    wanted, chosen = crc ^ zero, 0
    for bit in range(32):
        at = next(number for number in range(bit, 32) if moves[number][0] >> bit & 1)
        moves[bit], moves[at] = moves[at], moves[bit]
        moved, of = moves[bit]
        moves = [(m ^ moved, b ^ of) if n != bit and m >> bit & 1 else (m, b) for n, (m, b) in enumerate(moves)]
    for bit in range(32):
        if wanted >> bit & 1:
            chosen ^= moves[bit][1]
    return begin + chosen.to_bytes(4, "little")


DRAINS: dict[str, tuple[Callable[[list[Row]], object], str]] = {
    "leaves a record out": (lambda rows: rows.pop(17), "only the second reader found record 0/17 at output 2/5"),
    "reads a record twice": (lambda rows: rows.append({**rows[17], "offset": 99}), "only the drain found record 0/17 at output 2/99"),
    "takes a record for another": (
        lambda rows: rows.__setitem__(17, {**rows[17], "value": rows[20]["value"], "key": rows[20]["key"]}),
        "only the drain found record 0/20 at output 2/5, only the second reader found record 0/17 at output 2/5",
    ),
    "reads no identity": (
        lambda rows: rows.__setitem__(17, {**rows[17], "value": b"?"}),
        "only the drain found no record of ours at output 2/5, only the second reader found record 0/17 at output 2/5",
    ),
    "reads another batch": (
        lambda rows: rows.__setitem__(17, {**rows[17], "batch": 3}),
        "only the drain found record 0/17 at output 2/5, only the second reader found record 0/17 at output 2/5",
    ),
    "stops early": (
        lambda rows: rows.__delitem__(slice(50, None)),
        ", ".join(f"only the second reader found record 0/{number} at output 0/{number // 3}" for number in (51, 54, 57)) + " and 7 more",
    ),
}


@pytest.mark.parametrize("drain", DRAINS)
def test_a_drain_that_reads_something_else_is_named_with_the_first_records(drain: str, tmp_path: Path) -> None:
    misread, names = DRAINS[drain]
    rows = _rows()
    misread(rows)
    _, conflict = _judged(_write(tmp_path / "run", rows, _rows()))
    assert conflict == f"the drain and the second reader of the output do not agree: {names}"


def test_what_only_the_drain_read_is_judged_by_its_word(tmp_path: Path) -> None:
    rows = _rows()
    rows.pop(17)
    verdict, conflict = _judged(_write(tmp_path / "run", rows, None))
    assert (verdict.outcome, conflict) == ("FAILED", None)


def test_a_record_whose_send_was_not_written_down_is_held_to_its_own_checksum(tmp_path: Path) -> None:
    for number, damage in enumerate((None, "another payload")):
        rows = _rows()
        rows[17] = DAMAGED[damage](rows[17]) if damage else rows[17]
        folder = _write(tmp_path / str(number), rows, rows)
        sent = pq.read_table(folder.sent / "00000.parquet")
        pq.write_table(sent.filter([sequence != 17 for sequence in sent["sequence"].to_pylist()]), folder.sent / "00000.parquet")
        folder.intents.write_text('{"producer": 0, "first": 0, "count": 60}\n')
        _seal(folder)
        verdict, conflict = _judged(folder)
        assert (verdict.outcome, conflict) == ("FAILED" if damage else "PASSED", None), verdict.reason


def test_the_empty_payload_has_a_digest_too() -> None:
    assert _sha256(b"k0", b"") != _sha256(b"k", b"0")


def test_a_folder_of_files_is_read_a_second_time_by_other_code(tmp_path: Path) -> None:
    folder = _write(tmp_path / "run", _rows(), None)
    job, testbed, sink = spark_job(folder, "file_sink", sink="listed_files"), cast(Testbed, None), ListedFiles()
    job.files.mkdir()
    rows = _rows()
    rows[17]["key"] = b"another"
    for number, part in enumerate((rows[:40], rows[40:])):
        pq.write_table(pa.table({name: [row[name] for row in part] for name in ("key", "value")}), job.files / f"part-{number}.parquet")
    (job.files / "part-0a.parquet").write_bytes(b"PAR1 half")
    drained = sink.drain(folder, job, testbed, 30)
    assert drained["half_written_files"] == ["part-0a.parquet"]
    read_again(folder, job, testbed, drained, 7, 30)
    manifest.write(folder)
    verdict, conflict = _judged(folder)
    assert (verdict.outcome, verdict.anomalies["CORRUPTED"], conflict) == ("FAILED", 1, None)
    (job.files / "part-1.parquet").unlink()
    read_again(folder, job, testbed, drained, 7, 30)
    manifest.write(folder)
    _, conflict = _judged(folder)
    assert conflict is not None
    assert conflict.startswith("the drain and the second reader of the output do not agree: only the drain found record 0/40 at output 2/0")
