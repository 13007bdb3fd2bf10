"""What the set-up accepts, what it refuses and what it says then. A repository served from this machine stands for the registry."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import bootstrap
from streamproof import settings
from streamproof.testbed import install
from tests.support.checkout import ROOT

GROUP, ARTIFACT, VERSION = "org.example", "thing", "1.0"
COORDINATE = f"{GROUP}:{ARTIFACT}:{VERSION}"
CONTENT = b"the jar that was locked"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def quiet(line: str) -> None:
    """A report that nobody reads."""


class _Registry(http.server.SimpleHTTPRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Tests have no access log."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache and a Maven repository of the user, both empty."""
    monkeypatch.setenv("STREAMPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    return settings.cache()


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a Maven repository that is served over HTTP, with the locked jar in it."""
    root = tmp_path / "registry"
    put(root, CONTENT)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Registry, directory=str(root)))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("STREAMPROOF_MAVEN_URL", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield root
    server.shutdown()
    server.server_close()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "jars.lock"
    path.write_text(f"# a comment\nkafka {COORDINATE} {SHA256}\n")
    return path


def put(repository: Path, content: bytes) -> Path:
    path = repository / GROUP.replace(".", "/") / ARTIFACT / VERSION / f"{ARTIFACT}-{VERSION}.jar"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def installed() -> Path:
    return settings.cache() / "jars" / "kafka" / f"{ARTIFACT}-{VERSION}.jar"


def test_a_jar_is_downloaded_checked_and_laid_out(registry: Path, lock: Path) -> None:
    install.install_jars(quiet, lock)
    assert installed().read_bytes() == CONTENT


def test_a_second_call_asks_nobody(registry: Path, lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install.install_jars(quiet, lock)
    monkeypatch.setenv("STREAMPROOF_MAVEN_URL", "http://127.0.0.1:9/")
    lines: list[str] = []
    install.install_jars(lines.append, lock)
    assert lines == ["jars: all 1 are in place"]


def test_a_wrong_checksum_names_the_coordinate_what_was_expected_and_what_came_and_leaves_nothing(registry: Path, lock: Path) -> None:
    put(registry, b"something else")
    with pytest.raises(install.SetupError) as error:
        install.install_jars(quiet, lock)
    assert COORDINATE in str(error.value)
    assert f"expected SHA-256 {SHA256}" in str(error.value)
    assert f"found {hashlib.sha256(b'something else').hexdigest()}" in str(error.value)
    assert not list(settings.cache().rglob("*.jar"))


def test_what_an_interrupted_download_left_is_downloaded_anew(registry: Path, lock: Path, cache: Path) -> None:
    put(cache / "downloads", CONTENT[:5])
    install.install_jars(quiet, lock)
    assert installed().read_bytes() == CONTENT


def test_the_users_own_repository_is_used_without_a_download(tmp_path: Path, lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROOF_MAVEN_URL", "http://127.0.0.1:9/")
    put(tmp_path / "m2", CONTENT)
    install.install_jars(quiet, lock)
    assert installed().read_bytes() == CONTENT


def test_a_bad_jar_in_the_users_own_repository_is_passed_over_and_left_alone(registry: Path, tmp_path: Path, lock: Path) -> None:
    theirs = put(tmp_path / "m2", b"damaged")
    install.install_jars(quiet, lock)
    assert installed().read_bytes() == CONTENT
    assert theirs.read_bytes() == b"damaged"


def test_an_unreachable_repository_is_one_error_that_says_what_to_do(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROOF_MAVEN_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    expected = rf"(?s)jar {COORDINATE}: could not be downloaded .*run `streamproof setup` .* again: it goes on where it stopped"
    with pytest.raises(install.SetupError, match=expected):
        install.install_jars(quiet, lock)


@pytest.mark.parametrize("damage", ["changed", "removed", "added", "lock"])
def test_a_set_of_jars_that_is_not_as_it_was_checked_is_put_right(registry: Path, lock: Path, damage: str) -> None:
    install.install_jars(quiet, lock)
    if damage == "changed":
        installed().write_bytes(b"changed")
    elif damage == "removed":
        installed().unlink()
    elif damage == "added":
        installed().with_name("other.jar").write_bytes(b"on the class path too")
    else:
        put(registry, b"newer")
        lock.write_text(f"kafka {COORDINATE} {hashlib.sha256(b'newer').hexdigest()}\n")
    install.install_jars(quiet, lock)
    assert [path.name for path in installed().parent.glob("*.jar")] == [installed().name]
    assert installed().read_bytes() == (b"newer" if damage == "lock" else CONTENT)


def test_a_folder_of_jars_that_was_copied_without_its_times_is_in_place(
    registry: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install.install_jars(quiet, lock)
    os.utime(installed(), (1, 1))
    monkeypatch.setenv("STREAMPROOF_MAVEN_URL", "http://127.0.0.1:9/")
    lines: list[str] = []
    install.install_jars(lines.append, lock)
    assert lines == ["jars: all 1 are in place"]


def test_an_empty_cache_is_told_piece_by_piece() -> None:
    problems = "\n".join(install.verify())
    assert "the kafka jars are not installed" in problems
    assert "the spark jars are not installed" in problems
    assert "the Toxiproxy server is not installed" in problems


@pytest.mark.parametrize("line", ["kafka org.example:thing:1.0", f"kafka org.example:thing {SHA256}", "kafka org.example:thing:1.0 abc"])
def test_a_bad_line_of_the_lock_is_named(tmp_path: Path, line: str) -> None:
    lock = tmp_path / "jars.lock"
    lock.write_text(f"# first\n{line}\n")
    with pytest.raises(install.SetupError, match=re.escape(f"line 2: expected `set group:artifact:version sha256`, found `{line}`")):
        install.locked_jars(lock)


def test_the_committed_locks_are_well_formed_and_name_no_host() -> None:
    jars = install.locked_jars()
    files = [(jar.set, f"{jar.artifact}-{jar.version}.jar") for jar in jars]
    assert {jar.set for jar in jars} == {"delta", "ecj", "iceberg", "jdbc", "kafka", "spark"}
    assert len(files) == len(set(files))
    assert all(re.fullmatch(r"v\S+ h1:\S{43}=", locked) for locked in install.locked_modules().values())
    locks = [*ROOT.glob("requirements*"), *ROOT.glob("docs/site/requirements*"), install.JARS_LOCK, install.GO_LOCK]
    assert not [lock.name for lock in locks if "://" in lock.read_text()]


def test_a_module_that_is_not_the_locked_one_is_refused() -> None:
    described = "server: go1.26\n" + "".join(
        f"\tdep\t{module}\t" + "\t".join(locked.split()) + "\n" for module, locked in install.locked_modules().items()
    )
    install.check_modules(described)
    with pytest.raises(install.SetupError, match=r"gorilla/mux: expected v1\.8\.1 h1:.*, found v9.9.9"):
        install.check_modules(described.replace("mux\tv1.8.1", "mux\tv9.9.9"))
    with pytest.raises(install.SetupError, match="cannot be checked"):
        install.check_modules("server: go1.26\n")


def test_a_proxy_that_was_compiled_from_other_sources_is_not_in_place(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "message_proxy"
    shutil.copytree(install.MESSAGE_PROXY, sources)
    monkeypatch.setattr(install, "MESSAGE_PROXY", sources)
    (cache / "bin").mkdir(parents=True)
    server = cache / "bin" / "toxiproxy-server"
    server.write_text("compiled")
    record = {"sources": install._sources(), "file": install._fingerprint(server), "sha256": install._sha256(server)}
    server.with_suffix(".json").write_text(json.dumps(record))
    assert not install.needs_go()
    (sources / "kafka_test.go").write_text("package main")
    assert not install.needs_go(), "a test is not compiled in"
    for changed in ("kafka.go", "go.sum"):
        kept = (sources / changed).read_text()
        (sources / changed).write_text(kept + "\n")
        assert install.needs_go(), changed
        (sources / changed).write_text(kept)


def java_that_says(folder: Path, version: str) -> Path:
    """A JAVA_HOME whose ``java`` introduces itself as ``version``."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '    java.home = {folder}' >&2\necho '    java.specification.version = {version}' >&2\n")
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize("version", ["17", "21"])
def test_java_home_is_preferred_when_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    home = java_that_says(tmp_path / "java", version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert install.java_home() == home


@pytest.mark.parametrize("version", ["1.8", "11", "25"])
def test_a_java_that_spark_does_not_support_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_that_says(tmp_path / "named", version)))
    fitting = java_that_says(tmp_path / "found", "17")
    monkeypatch.setenv("PATH", f"{fitting / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert install.machine_java() == fitting


def test_only_one_set_up_is_at_work_and_the_other_names_it(tmp_path: Path) -> None:
    with (
        install.only_one(tmp_path / "lock", quiet),
        pytest.raises(install.SetupError, match=rf"held by another set-up \(pid {os.getpid()}\)"),
        install.only_one(tmp_path / "lock", quiet, timeout_s=0.1),
    ):
        pass


def test_a_set_up_that_was_killed_holds_no_lock(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from streamproof.testbed import install\n"
        "with install.only_one(Path(sys.argv[1]), print):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGKILL)
        holder.wait(timeout=10)
    with install.only_one(tmp_path / "lock", quiet, timeout_s=1.0):
        pass


def test_too_little_disk_is_told_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(bootstrap.Failure, match=rf"disk: expected 999999999 GB free at {tmp_path}, found .* GB\. Free some"):
        bootstrap.check_disk(tmp_path / "not" / "there", 999_999_999)


CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


@pytest.mark.parametrize("variable", ["PIP_CERT", *CERTIFICATES])
def test_a_certificate_that_one_client_is_set_to_use_is_used_by_all(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in ("PIP_CERT", *CERTIFICATES):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert not set(CERTIFICATES) & set(bootstrap.settings_of_pip())
    monkeypatch.setenv(variable, "/ours.pem")
    used = {**os.environ, **bootstrap.settings_of_pip()}
    assert {used[each] for each in CERTIFICATES} == {"/ours.pem"}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("error: Failed to download `rich==15.0.0`\n  cause: Hash mismatch for `rich==15.0.0`", "wrong checksum"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "wrong checksum"),
        ("cause: Failed to fetch: somewhere\n  cause: dns error", "could not be reached"),
        ("error: No space left on device (os error 28)", "the disk is full"),
        ("error: something new", "Its own words follow"),
    ],
)
def test_an_installers_failure_is_put_in_one_sentence_with_its_last_words(said: str, told: str) -> None:
    message = bootstrap.explain("the packages", 2, said, Path("setup.log"))
    assert message.startswith("the packages: ")
    assert told in message.splitlines()[0]
    assert said.splitlines()[-1].strip() in message
