"""The notifier: real servers are told of what changed, and of nothing else; what a connection holds is in no log and no error."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamproof.evidence.folder import RunFolder, write_atomically
from streamproof.history.changes import Kind
from streamproof.run.nightly import NOT_RUN, NightlyRun, ScenarioResult, Summary
from streamproof.verdict.decide import RunOutcome
from tests.support.histories import SPEC, unjudged
from tests.support.listeners import MailServer, Webhook

PATH, TOKEN, PASSWORD = "hooks/T0/c2VjcmV0LXBhdGg", "secret-header", "secret-password"
SECRETS = (PATH, TOKEN, PASSWORD, "hooks/")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path / "airflow"))
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path))
    for name in ("WEBHOOK", "SMTP"):
        monkeypatch.delenv(f"AIRFLOW_CONN_STREAMPROOF_{name}", raising=False)
    return tmp_path


@pytest.fixture
def webhook(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    with Webhook() as server:
        _connect(monkeypatch, server)
        yield server


@pytest.fixture
def mail(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MailServer]:
    with MailServer(home, "streamproof", PASSWORD) as server:
        _connect_mail(monkeypatch, server, PASSWORD)
        yield server


def _connect(monkeypatch: pytest.MonkeyPatch, server: Webhook) -> None:
    extra = {"endpoint": PATH, "X-Token": TOKEN}
    fields = {"conn_type": "http", "schema": "http", "host": "127.0.0.1", "port": server.port, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_STREAMPROOF_WEBHOOK", json.dumps({**fields, "login": "someone", "password": PASSWORD}))


def _connect_mail(monkeypatch: pytest.MonkeyPatch, server: MailServer, password: str) -> None:
    extra = {"from_email": "streamproof@example.org", "to": "one@example.org, two@example.org", "disable_tls": True, "retry_limit": 0}
    fields = {"conn_type": "smtp", "host": "127.0.0.1", "port": server.port, "login": "streamproof", "password": password}
    monkeypatch.setenv("SSL_CERT_FILE", str(server.authority))
    monkeypatch.setenv("AIRFLOW_CONN_STREAMPROOF_SMTP", json.dumps({**fields, "extra": extra}))


def _entry(number: int, state: str, *, as_expected: bool) -> ScenarioResult:
    return ScenarioResult(
        number, "two_phase_commit", "kill_executor", 1, f"scenario {number}", "a-run", "PASSED", as_expected, state, "because <of> it"
    )


def _night(*scenarios: ScenarioResult) -> None:
    night = NightlyRun.named("night-1")
    summary = Summary("night-1", str(night.path), "2026-11-21T02:00:00.000+00:00", "2026-11-21T02:20:00.000+00:00", scenarios)
    write_atomically(night.path / "summary.json", json.dumps(summary.to_dict()))


def _notify(dag: str = "chaos_nightly", run_id: str = "night-1", *, failed: bool) -> None:
    from airflow.sdk import DAG

    from streamproof.airflow.notifier import ChangeNotifier

    ChangeNotifier(failed=failed).notify({"dag": DAG(dag_id=dag), "run_id": run_id})


def test_a_nightly_run_in_which_something_broke_is_posted_with_the_connections_headers_and_login(webhook: Webhook) -> None:
    _night(_entry(1, Kind.STABLE, as_expected=True), _entry(2, Kind.NEWLY_BROKEN, as_expected=False))
    _notify(failed=True)
    [post] = webhook.posts
    assert post.path == f"/{PATH}"
    assert post.headers["X-Token"] == TOKEN
    assert post.headers["Authorization"].startswith("Basic ")
    assert post.body["subject"] == "streamproof: 1 of 2 scenarios as expected: 1 newly broken, 1 stable"
    assert "newly broken: scenario 2, seed 1: because <of> it" in post.body["text"]
    assert post.body["red"] is True
    assert [scenario["state"] for scenario in post.body["scenarios"]] == [Kind.STABLE, Kind.NEWLY_BROKEN]


def test_it_is_mailed_over_tls_behind_a_login(mail: MailServer) -> None:
    _night(_entry(2, Kind.NEWLY_BROKEN, as_expected=False))
    _notify(failed=True)
    [letter] = mail.mails
    assert mail.logins == [True]
    assert letter.sender == "streamproof@example.org"
    assert letter.to == ["one@example.org", "two@example.org"]
    assert letter.message["Subject"] == "streamproof: 0 of 1 scenarios as expected: 1 newly broken"
    text: Any = letter.message.get_body(("html",))
    assert "because &lt;of&gt; it" in text.get_content()


@pytest.mark.parametrize("state", [Kind.FIXED, Kind.SLOWER, Kind.FLAKY])
def test_a_change_in_a_green_nightly_run_is_told(webhook: Webhook, state: Kind) -> None:
    _night(_entry(1, state, as_expected=True))
    _notify(failed=False)
    assert len(webhook.posts) == 1


@pytest.mark.parametrize("state", [Kind.STILL_BROKEN, NOT_RUN])
def test_what_is_not_as_expected_is_told_although_it_is_not_new(webhook: Webhook, state: str) -> None:
    _night(_entry(1, state, as_expected=False))
    _notify(failed=True)
    assert len(webhook.posts) == 1


@pytest.mark.parametrize("state", [Kind.STABLE, Kind.NEW])
def test_a_nightly_run_in_which_nothing_changed_is_passed_over_in_silence(webhook: Webhook, mail: MailServer, state: Kind) -> None:
    _night(_entry(1, state, as_expected=True))
    _notify(failed=False)
    assert webhook.posts == []
    assert mail.mails == []


def test_a_nightly_run_that_came_to_no_summary_is_told(webhook: Webhook) -> None:
    _notify(failed=True)
    assert webhook.posts[0].body["subject"] == "streamproof: nightly run night-1 came to no summary"


def test_an_experiment_that_failed_is_told_and_one_that_went_well_is_not(webhook: Webhook, home: Path) -> None:
    folder = RunFolder.create(home / "runs" / "mine")
    write_atomically(folder.verdict, json.dumps(unjudged(SPEC, RunOutcome.FAILED, "it broke exactly-once: 3 LOST")))
    _notify("chaos_experiment", "mine", failed=True)
    _notify("chaos_experiment", "mine", failed=False)
    [post] = webhook.posts
    assert post.body["subject"] == "streamproof: mine: FAILED"
    assert "3 LOST" in post.body["text"]


@pytest.mark.parametrize(("base_url", "told"), [("https://lab.example.org/airflow", True), ("/airflow", False), ("", False)])
def test_the_dag_run_is_linked_to_where_airflow_knows_its_address(
    webhook: Webhook, base_url: str, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base_url)
    _notify(run_id="scheduled__2026-11-21T02:00:00+00:00", failed=True)
    [post] = webhook.posts
    link = f"{base_url}/dags/chaos_nightly/runs/scheduled__2026-11-21T02%3A00%3A00%2B00%3A00"
    assert post.body.get("link") == (link if told else None)
    assert post.body["text"].endswith(f"\n{link}" if told else "See the DAG run in Airflow.")


def test_of_an_experiment_that_was_cleared_the_last_run_is_told(webhook: Webhook, home: Path) -> None:
    for name, outcome in (("mine", "ABORTED"), ("mine-try2", "FAILED")):
        folder = RunFolder.create(home / "runs" / name)
        write_atomically(folder.verdict, json.dumps(unjudged(SPEC, RunOutcome(outcome), "because")))
    _notify("chaos_experiment", "mine", failed=True)
    assert webhook.posts[0].body["subject"] == "streamproof: mine-try2: FAILED"


def test_an_experiment_that_was_never_judged_is_told_as_such(webhook: Webhook) -> None:
    _notify("chaos_experiment", "never", failed=True)
    assert webhook.posts[0].body["outcome"] == "no verdict"


def test_without_a_connection_nothing_is_sent_and_nothing_fails(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    _night(_entry(1, Kind.NEWLY_BROKEN, as_expected=False))
    with caplog.at_level(logging.INFO):
        _notify(failed=True)
    assert "there is no connection streamproof_webhook" in caplog.text


def test_what_a_connection_holds_is_in_no_log(webhook: Webhook, mail: MailServer, caplog: pytest.LogCaptureFixture) -> None:
    _night(_entry(1, Kind.NEWLY_BROKEN, as_expected=False))
    with caplog.at_level(logging.DEBUG):
        _notify(failed=True)
    assert (len(webhook.posts), len(mail.mails)) == (1, 1)
    assert "told through streamproof_webhook" in caplog.text
    assert [secret for secret in SECRETS if secret in caplog.text] == []


def test_one_that_does_not_take_it_is_named_without_its_secrets_and_the_other_is_told(
    home: Path, mail: MailServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from streamproof.airflow.notifier import NotToldError

    _night(_entry(1, Kind.NEWLY_BROKEN, as_expected=False))
    with Webhook(status=500) as server, caplog.at_level(logging.DEBUG):
        _connect(monkeypatch, server)
        with pytest.raises(NotToldError) as failure:
            _notify(failed=True)
    assert str(failure.value) == "not told through streamproof_webhook: HTTPStatusError (500)"
    assert failure.value.__cause__ is failure.value.__context__ is None
    assert len(mail.mails) == 1
    assert [secret for secret in SECRETS if secret in caplog.text] == []


def test_a_mail_server_that_refuses_the_login_is_told_by_its_number(mail: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamproof.airflow.notifier import NotToldError

    _night(_entry(1, Kind.NEWLY_BROKEN, as_expected=False))
    _connect_mail(monkeypatch, mail, "wrong-password")
    with pytest.raises(NotToldError, match=r"^not told through streamproof_smtp: SMTPAuthenticationError \(535\)$"):
        _notify(failed=True)
    assert mail.mails == []
