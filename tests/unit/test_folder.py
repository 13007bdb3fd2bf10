"""A run's folder keeps whole things: a file is replaced or not, a journal's line is there or not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from streamproof.evidence.folder import EvidenceError, RunFolder, read_json_lines, utc_now, write_atomically
from streamproof.evidence.journal import Aborted
from tests.support.checkout import ROOT


def test_a_stamp_is_utc_with_milliseconds() -> None:
    stamp = utc_now()
    assert datetime.fromisoformat(stamp).utcoffset() == timedelta(0)
    assert len(stamp) == len("2026-01-01T00:00:00.000+00:00")


def test_a_last_line_without_its_end_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"event":"a"}\n{"event":"b"')
    assert [line["event"] for line in read_json_lines(path)] == ["a"]


def test_a_damaged_line_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text('{"event":"a"}\n{"event"\n{"event":"c"}\n')
    with pytest.raises(EvidenceError, match=r"lines\.jsonl: a line is not JSON"):
        list(read_json_lines(path))


def test_a_line_that_is_no_object_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text("[1]\n")
    with pytest.raises(EvidenceError, match=r"lines\.jsonl: a line is not JSON of an object"):
        list(read_json_lines(path))


def test_a_replaced_file_is_the_old_or_the_new_one_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new\ud800")
    assert path.read_text() == "old"
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert [found.name for found in path.parent.iterdir()] == ["file.json"]


def test_readers_never_see_half_of_a_file_whose_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    code = (
        "import sys, itertools; from pathlib import Path; from streamproof.evidence.folder import write_atomically\n"
        "for number in itertools.count(): write_atomically(Path(sys.argv[1]), str(number % 10) * 100_000)"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(path)], cwd=ROOT)
    try:
        seen: set[str] = set()
        while len(seen) < 5:
            assert writer.poll() is None
            if path.exists():
                text = path.read_text()
                assert text == text[0] * 100_000
                seen.add(text[0])
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait(10)
    assert len(set(path.read_text())) == 1


def test_opening_a_folder_that_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match=r"is not a run's folder: it has no experiment\.yaml"):
        RunFolder.open(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_creating_a_folder_twice_keeps_what_is_in_it(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.journal.append(Aborted(reason="first"))
    assert RunFolder.create(tmp_path / "run").journal.all(Aborted)[0].reason == "first"
    assert folder.name == "run"


def test_json_that_is_missing_or_damaged_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    with pytest.raises(EvidenceError, match=r"drain\.json is missing"):
        folder.read_json(folder.drain)
    folder.drain.write_text("{")
    with pytest.raises(EvidenceError, match=r"drain\.json is not JSON"):
        folder.read_json(folder.drain)
    folder.drain.write_text(json.dumps({"complete": True}))
    assert folder.read_json(folder.drain) == {"complete": True}
