"""What a user gives is checked before anything is touched; one line names the field, what was expected and what came."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from streamproof.engines.spark.registry import STRATEGIES
from streamproof.engines.spark.spec import profile
from streamproof.errors import BadInput
from streamproof.experiment.form import Form
from streamproof.experiment.model import MAX_SEED, Experiment, FaultSpec, load
from streamproof.experiment.schedule import plan
from streamproof.faults import FAULTS
from streamproof.load.spec import Source, Workload
from streamproof.verdict.anomaly import Anomaly
from streamproof.verdict.guarantee import Guarantee
from tests.support.checkout import ROOT

GOOD = "strategy: checkpoint\n"


@pytest.fixture
def refusal(tmp_path: Path):  # type: ignore[no-untyped-def]
    """What ``load`` says of a text (or bytes) that it must refuse."""

    def refused(content: str | bytes) -> str:
        path = tmp_path / "bad.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(BadInput) as found:
            load(path)
        message = str(found.value)
        assert message.startswith(str(path)), "an error names the file"
        return message.removeprefix(str(path)).removeprefix(": ")

    return refused


@pytest.mark.parametrize(
    ("content", "field", "told"),
    [
        ("strategy: nope", "strategy", "there is no strategy 'nope'; there are: at_most_once, checkpoint, delta_"),
        ("strategy:", "the experiment", "give the `strategy` of a built-in Spark job, or describe your own in `job`"),
        ("strategy: [a]", "strategy", "there is no strategy ['a']"),
        ("name: x", "the experiment", "give the `strategy` of a built-in Spark job, or describe your own in `job`"),
        (GOOD + "faults: [{fault: nope}]", "faults.0.fault", "there is no fault 'nope'; there are: "),
        (GOOD + "faults: {fault: kill_executor}", "faults", "valid list"),
        (GOOD + "faults: [{fault: kill_executor, at: 0}]", "faults.0.at", "greater than or equal to 0.05, came 0"),
        (GOOD + "faults: [{fault: kill_executor, at: 1.5}]", "faults.0.at", "came 1.5"),
        (GOOD + "faults: [{fault: kill_executor, at: .nan}]", "faults.0.at", "came nan"),
        (GOOD + "faults: [{fault: kill_executor, at: .inf}]", "faults.0.at", "came inf"),
        (GOOD + "faults: [{fault: kill_executor, when: 0.5}]", "faults.0.when", "not permitted, came 0.5"),
        (GOOD + "faults: [{fault: kill_executor, at: 0.5, batch: 3}]", "faults.0", "kill_executor has 2 triggers, at: 0.5 and batch: 3"),
        (GOOD + "faults: [{fault: cut_kafka, at: 0.5, step: after_output}]", "faults.0", "2 triggers, at: 0.5 and step: after_output"),
        (GOOD + "faults: [{fault: kill_executor, batch: 0}]", "faults.0.batch", "came 0"),
        (GOOD + "faults: [{fault: kill_executor, phase: steady}]", "faults.0.phase", "'impact' or 'recovery', came 'steady'"),
        (GOOD + "faults: [{fault: kill_executor, phase: recovery, at: 0.8}]", "faults.0", "leave `at: 0.8` out"),
        (GOOD + "faults: [{fault: kill_executor, overlaps: true, batch: 8}]", "faults.0", "leave `batch: 8` out"),
        (GOOD + "faults: [{fault: kill_executor, overlaps: true}]", "the experiment", "none before it that it could overlap"),
        (
            GOOD + "faults: [{fault: cut_kafka, step: after_decision}]",
            "the experiment",
            "no step 'after_decision'; it can wait for: after_output",
        ),
        (
            GOOD + "faults: [{fault: kill_executor, step: after_output}]",
            "the experiment",
            "at after_output (a watched step); it can wait for: none",
        ),
        (GOOD + "faults: [{fault: crash_at_step, step: after_output}]", "the experiment", "`parameters: {step: after_output}`"),
        (
            "strategy: two_phase_commit\nfaults: [{fault: cut_kafka, step: after_abort}]",
            "the experiment",
            "while recovering from a crash only",
        ),
        (GOOD + "quiet: 3 s", "quiet", "or a time of at most 60s as in '5s', came '3 s'"),
        (GOOD + "quiet: 0s", "quiet", "or a time of at most 60s as in '5s', came '0s'"),
        (GOOD + "quiet: -0.1", "quiet", "a share of at most 0.5"),
        (GOOD + "quiet: .nan", "quiet", "a share of at most 0.5"),
        (GOOD + "random: {count: 99}", "random.count", "less than or equal to 12, came 99"),
        (GOOD + "workload: {records: -5}", "workload.records", "greater than or equal to 100, came -5"),
        (GOOD + "workload: {records: .nan}", "workload.records", "finite number, came nan"),
        (GOOD + "workload: {records: .inf}", "workload.records", "finite number, came inf"),
        (GOOD + f"workload: {{records: {10**30}}}", "workload.records", "less than or equal to 50000000"),
        (GOOD + "workload: {records: 1000.5}", "workload.records", "came 1000.5"),
        (GOOD + "workload: {records: many}", "workload.records", "came 'many'"),
        (GOOD + "workload: {records: 336777}", "workload", "336776 records, 336777 were asked for: use source 'synthetic'"),
        (GOOD + "workload: {source: kafka}", "workload.source", "'flights' or 'synthetic', came 'kafka'"),
        (GOOD + "workload: {partitions: 0}", "workload.partitions", "came 0"),
        (GOOD + "workload: {rate_per_s: -1}", "workload.rate_per_s", "came -1"),
        (GOOD + "workload: {rate_per_s: 10000001}", "workload.rate_per_s", "came 10000001"),
        (GOOD + "workload: {recrds: 5}", "workload.recrds", "not permitted, came 5"),
        (GOOD + "stratgy: x", "stratgy", "not permitted, came 'x'"),
        (GOOD + "name: ../x", "name", "match pattern"),
        (GOOD + "seed: -1", "seed", "came -1"),
        (GOOD + f"seed: {MAX_SEED + 1}", "seed", f"came {MAX_SEED + 1}"),
        (GOOD + "guarantee: always", "guarantee", "came 'always'"),
        (GOOD + "expect: [BROKEN]", "expect.0", "came 'BROKEN'"),
        (GOOD + "timeout_s: 1", "timeout_s", "came 1"),
        (GOOD + "pipeline: nope", "pipeline", "there is no pipeline 'nope'"),
    ],
)
def test_bad_input_is_one_line_that_names_the_field(refusal, content: str, field: str, told: str) -> None:  # type: ignore[no-untyped-def]
    message = refusal(content)
    assert "\n" not in message
    assert message.split(": ")[0] == field
    assert told in message


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[1, 2]", "expected a mapping with at least `strategy`, came list"),
        ("", "expected a mapping with at least `strategy`, came NoneType"),
        ("hello", "expected a mapping with at least `strategy`, came str"),
        ("strategy: [", "is not YAML"),
        (b"\x00\xff\xfe\x01", "cannot be read"),
        (b"strategy: \x00", "is not YAML"),
        ("!!python/object/apply:os.system ['true']", "is not YAML"),
        (GOOD + "---\n" + GOOD, "is not YAML"),
    ],
)
def test_a_file_that_is_no_experiment_is_refused(refusal, content: str | bytes, told: str) -> None:  # type: ignore[no-untyped-def]
    assert told in refusal(content)


@pytest.mark.parametrize(
    "content",
    [
        GOOD + "name: 2026-13-45",
        GOOD + f"seed: 1{'0' * 5000}",
        GOOD + "seed: 0b_",
        "[" * 5000,
        GOOD + "seed: !!int ''",
        GOOD + "seed: !!bool maybe",
        GOOD + "seed: !!timestamp soon",
        GOOD + f"seed: 0x{'f' * 9000}",
    ],
    ids=["date", "digits", "base", "deep", "no-digit", "no-bool", "no-time", "bits"],
)
def test_yaml_that_its_parser_chokes_on_is_refused(refusal, content: str) -> None:  # type: ignore[no-untyped-def]
    assert "\n" not in refusal(content)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (GOOD + "strategy: two_phase_commit", "line 2: strategy is given twice, first in line 1"),
        (GOOD + "workload:\n  records: 500\n  source: flights\n  records: 600", "line 5: records is given twice, first in line 3"),
        (GOOD + "faults: [{fault: kill_executor, fault: none}]", "line 2: fault is given twice"),
    ],
)
def test_a_key_that_is_given_twice_is_refused(refusal, content: str, told: str) -> None:  # type: ignore[no-untyped-def]
    assert told in refusal(content)


@pytest.mark.parametrize(
    "content", [f"name: {'x' * 5000}", f"batch_records: {['y' * 50] * 500}", f"{'z' * 5000}: 1", '"a\\nb": 1', "name: [*a]"]
)
def test_a_long_value_or_name_is_cut_short_and_stays_on_its_line(refusal, content: str) -> None:  # type: ignore[no-untyped-def]
    message = refusal(GOOD + content)
    assert len(message) < 600  # most of it are the names that there are
    assert "\n" not in message


def test_the_strategy_that_there_is_not_is_cut_short_before_those_that_there_are(refusal) -> None:  # type: ignore[no-untyped-def]
    message = refusal(f"strategy: {'x' * 5000}")
    assert len(message) < 600  # most of it are the names that there are
    assert "there are: at_most_once" in message


def test_keys_that_are_merged_may_be_given_again(tmp_path: Path) -> None:
    path = tmp_path / "merged.yaml"
    path.write_text(GOOD + "workload:\n  <<: {records: 500, partitions: 2}\n  records: 600\n")
    found = load(path).workload
    assert (found.records, found.partitions) == (600, 2)


@pytest.mark.parametrize(
    ("fault", "field", "told"),
    [
        ("{fault: kill_executor, parameters: {count: 99}}", "count", "came 99"),
        ("{fault: kill_executor, parameters: {cuont: 1}}", "cuont", "not permitted"),
        ("{fault: network_latency, parameters: {latency_ms: .nan}}", "latency_ms", "finite"),
        ("{fault: network_latency, parameters: {latency_ms: -1}}", "latency_ms", "came -1"),
        ("{fault: network_latency, parameters: {latency_ms: 10, jitter_ms: 11}}", "jitter_ms", "at most latency_ms, 10, came 11"),
        ("{fault: slicer, parameters: {average_bytes: 100}}", "variation_bytes", "less than average_bytes, 100, came 256"),
        ("{fault: bandwidth, parameters: {link: files}}", "link", "came 'files'"),
        ("{fault: add_partitions, parameters: {count: 1000000}}", "count", "came 1000000"),
        ("{fault: crash_at_step, parameters: {step: [1]}}", "step", "valid string"),
    ],
)
def test_a_faults_parameters_are_checked_by_name(refusal, fault: str, field: str, told: str) -> None:  # type: ignore[no-untyped-def]
    message = refusal(GOOD + f"faults: [{fault}]")
    assert "\n" not in message
    assert message.split(": ")[0] == f"faults.0.parameters.{field}"
    assert told in message


def test_a_step_that_the_strategy_has_not_is_refused_with_those_it_has(refusal) -> None:  # type: ignore[no-untyped-def]
    message = refusal("strategy: offset_commit\nfaults: [{fault: crash_at_step, parameters: {step: after_decision}}]")
    assert "a job with 'offset_commit' has no step 'after_decision'; its steps: after_output, after_offset_commit" in message


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            "strategy: offset_commit\non_lost_decision: go_on",
            "on_lost_decision: strategy 'offset_commit' decides nothing about Kafka transactions; leave it out",
        ),
        (
            "strategy: offset_in_transaction\nfaults: [{fault: time_out_transaction, parameters: {decided: true}}]",
            "time_out_transaction: a job with 'offset_in_transaction' decides nothing about its transactions; leave `decided` out",
        ),
        ("strategy: checkpoint\nfaults: [{fault: time_out_transaction}]", "a job with 'checkpoint' has no Kafka transactions"),
        (
            "strategy: two_phase_commit\nfaults: [{fault: time_out_transaction, step: after_decision}]",
            "time_out_transaction chooses its moment by itself: leave `step` out",
        ),
    ],
)
def test_a_decision_that_cannot_be_lost_is_not_waited_for(refusal, content: str, told: str) -> None:  # type: ignore[no-untyped-def]
    assert told in refusal(content)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("{fault: kill_driver, window: Produce}", "expected the name of a window, as in `INSERT orders > commits`, came 'Produce'"),
        ("{fault: kill_driver, window: commits > nothing}", "there is no step 'nothing'; `streamproof windows` lists"),
        ("{fault: kill_driver, window: any, at: 0.5}", "kill_driver has 2 triggers, at: 0.5 and window: any: give one of them"),
        ("{fault: kill_at_window, window: any}", "kill_at_window is aimed at windows by itself: name it in its parameters"),
        ("{fault: lose_answer, window: any}", "lose_answer chooses its moment by itself: leave `window` out"),
    ],
)
def test_a_window_that_a_fault_cannot_wait_for_is_refused(refusal, fault: str, told: str) -> None:  # type: ignore[no-untyped-def]
    assert told in refusal(GOOD + f"faults: [{fault}]")


def test_an_expected_anomaly_that_the_guarantee_forbids_is_refused(refusal) -> None:  # type: ignore[no-untyped-def]
    message = refusal("strategy: two_phase_commit\nexpect: [DUPLICATED]")
    assert "expect: DUPLICATED is forbidden by exactly-once; set `guarantee`" in message
    assert Experiment(strategy="two_phase_commit", guarantee=Guarantee.AT_LEAST_ONCE, expect=[Anomaly.DUPLICATED]).expect


def test_each_of_several_problems_has_a_line(refusal) -> None:  # type: ignore[no-untyped-def]
    message = refusal("strategy: nope\nseed: -1\nworkload: {records: 1}")
    assert len(message.splitlines()) == 3


def test_a_file_that_is_not_there_or_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(BadInput, match="cannot be read"):
        load(tmp_path)


@pytest.mark.parametrize("path", sorted((ROOT / "chaos").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_experiment_of_the_repository_can_be_planned(path: Path) -> None:
    found = load(path)
    assert found.name == path.stem
    assert len(plan(found).injections) == (len(found.faults) if found.random is None else found.random.count)


# --- what is made of good input -----------------------------------------------------------------------------------------------------


@given(
    st.sampled_from(sorted(STRATEGIES)),
    st.lists(st.sampled_from(["kill_executor", "network_latency", "add_partitions"]), max_size=3),
    st.integers(100, 336_776),
    st.sampled_from(Source),
    st.none() | st.integers(10, 10_000),
)
def test_an_experiment_is_read_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, strategy: str, faults: list[str], records: int, source: Source, batch: int | None
) -> None:
    made = Experiment(
        strategy=strategy,
        workload=Workload(source=source, records=records),
        faults=[FaultSpec(fault=fault) for fault in faults],
        batch_records=batch,
    )
    path = tmp_path_factory.getbasetemp() / "experiment.yaml"
    path.write_text(made.to_yaml())
    assert load(path) == made


def test_a_seed_is_drawn_when_none_is_given_and_kept_when_one_is() -> None:
    assert len({Experiment(strategy="checkpoint").seed for _ in range(5)}) > 1
    assert Experiment(strategy="checkpoint", seed=5).with_seed(None).seed == 5
    assert Experiment(strategy="checkpoint", seed=5).with_seed(6).seed == 6
    with pytest.raises(ValidationError):
        Experiment(strategy="checkpoint").with_seed(-1)


def test_the_strategys_own_promise_holds_unless_another_is_given() -> None:
    assert Experiment(strategy="checkpoint").promised is Guarantee.AT_LEAST_ONCE
    assert Experiment(strategy="checkpoint", guarantee=Guarantee.EXACTLY_ONCE).promised is Guarantee.EXACTLY_ONCE


def _possible(strategy: str, fault: str) -> bool:
    try:
        if fault != "none":
            FAULTS[fault].check(profile(strategy), {})
    except ValueError:
        return False
    return True


def test_a_fault_that_needs_three_brokers_is_refused_on_one_and_the_form_gives_it_three() -> None:
    with pytest.raises(ValidationError, match="kill_leader: it needs a Kafka of 3 brokers, the experiment has 1: set `brokers: 3`"):
        Experiment(strategy="checkpoint", faults=[FaultSpec(fault="kill_leader")])
    assert Experiment(strategy="checkpoint", brokers=3, faults=[FaultSpec(fault="kill_leader")]).brokers == 3
    assert Form(strategy="checkpoint", fault="kill_leader").experiment().brokers == 3
    assert Form(strategy="checkpoint", fault="kill_kafka").experiment().brokers == 1


@pytest.mark.parametrize(
    ("fault", "strategy"), [("kill_transaction_coordinator", "checkpoint"), ("kill_group_coordinator", "two_phase_commit")]
)
def test_a_coordinator_that_the_job_does_not_need_is_refused(fault: str, strategy: str) -> None:
    with pytest.raises(ValidationError, match=f"{fault}: a job with '{strategy}' has no"):
        Experiment(strategy=strategy, brokers=3, faults=[FaultSpec(fault=fault)])


ALL_CHOICES = [(strategy, fault) for strategy in STRATEGIES for fault in (*FAULTS, "none")]
CHOICES = [choice for choice in ALL_CHOICES if _possible(*choice)]
IMPOSSIBLE = [choice for choice in ALL_CHOICES if not _possible(*choice)]


@pytest.mark.parametrize(("strategy", "fault"), IMPOSSIBLE)
def test_choices_of_the_form_that_do_not_fit_each_other_are_refused(strategy: str, fault: str) -> None:
    with pytest.raises(ValidationError, match=f"{fault}: a job with '{strategy}'"):
        Form(strategy=strategy, fault=fault).experiment()


@pytest.mark.parametrize(("strategy", "fault"), CHOICES)
def test_each_choice_of_the_form_is_an_experiment_that_can_be_planned(strategy: str, fault: str) -> None:
    found = Form(strategy=strategy, fault=fault, seed=3).experiment()
    assert plan(found).seed == 3
    assert [spec.fault for spec in found.faults] == ([] if fault == "none" else [fault])
    assert yaml.safe_load(found.to_yaml())["name"] == found.name


def test_a_job_of_ones_own_takes_the_place_of_the_strategy(tmp_path: Path) -> None:
    file = tmp_path / "My Orders.yaml"
    file.write_text("engine: command\ncommand: [./orders]\npromises: at-least-once\n")
    found = Form(job=str(file), fault="kill_driver", workload="synthetic", records=2000, seed=3).experiment()
    assert (found.name, found.label, found.strategy, found.workload.records) == ("my-orders-kill-driver", "orders", None, 2000)
    with pytest.raises(ValidationError, match="kill_executor: a job with 'orders' has no executors"):
        Form(job=str(file)).experiment()
    with pytest.raises(ValidationError, match=r"job: .* says what is run, but strategy 'checkpoint' was given too"):
        Form(job=str(file), strategy="checkpoint")
    with pytest.raises(ValidationError, match=r"no-such\.yaml cannot be read"):
        Form(job=str(tmp_path / "no-such.yaml"), fault="none").experiment()


def test_the_form_expects_what_its_fault_provokes() -> None:
    assert Form(strategy="offset_commit", fault="crash_at_step").experiment().expect == [Anomaly.DUPLICATED]
    assert Form(strategy="two_phase_commit", fault="crash_at_step").experiment().expect == []


def test_the_forms_schema_offers_the_choices_there_are() -> None:
    properties = Form.model_json_schema()["properties"]
    assert properties["strategy"]["enum"] == list(STRATEGIES)
    assert properties["fault"]["enum"] == [*FAULTS, "none"]
    assert all("description" in field for field in properties.values())


def test_importing_the_model_imports_neither_spark_nor_kafka() -> None:
    heavy = ("pyspark", "confluent_kafka", "kafka", "pandas", "pyarrow", "numpy", "great_expectations", "airflow")
    code = f"import sys, streamproof.experiment.model; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"
