"""MLPerf's log: accepted by its own checker where it knows the benchmark, and by our stricter rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.__main__ import main
from reports.mllog import TOKEN
from reports.mllog_check import check, check_files, parse
from reports.mllog_official import check_officially, installed
from suite.errors import UsageProblem
from suite.plan import Quality
from tests.reports2_toy import real_session

OFFICIAL = pytest.mark.skipif(not installed(), reason="mlperf-logging (the extra `mlperf`) is not installed")
RULESET = "5.0.0"

PARAMS = {
    "train_batch_size": 8, "gradient_accumulation_steps": 1, "lr": 0.00035, "optimizer": "lamb", "adam_eps": 1e-6,
    "adam_beta1": 0.9, "adam_beta2": 0.999, "weight_decay": 0.01, "schedule_steps": 7500, "warmup_steps": 0,
}  # fmt: skip

Lines = list[dict[str, Any]]


def bert_log(tmp_path: Path, **run: Any) -> Path:
    """The exported log of a BERT run that reached 0.7215."""
    quality = Quality(metric="mlm_accuracy", better="higher", unit="fraction", target=0.72, source="MLPerf")
    folder, plan = real_session(
        tmp_path / "s",
        runs=[{"quality": (0.5, 0.7, 0.7215), **run}],
        model="bert",
        id="bert-pytorch-cpu-host-mini-1x2",
        quality=quality,
        checks=(),
        params=PARAMS,
    )
    assert main(["export", "mllog", str(folder), "--output", str(tmp_path / "logs")]) == 0
    return tmp_path / "logs" / plan.id / "result_0.txt"


def edited(path: Path, change: Callable[[Lines], Lines | None]) -> Path:
    """The log with its entries changed."""
    entries = [json.loads(line.removeprefix(TOKEN)) for line in path.read_text().splitlines()]
    entries = change(entries) or entries
    path.write_text("".join(f"{TOKEN}{json.dumps(entry)}\n" for entry in entries))
    return path


def without(key: str) -> Callable[[Lines], Lines]:
    """Every entry but those of `key`."""
    return lambda entries: [entry for entry in entries if entry["key"] != key]


def put(key: str, **fields: Any) -> Callable[[Lines], None]:
    """Fields of the first entry of `key`; `status` goes into its metadata."""

    def change(entries: Lines) -> None:
        entry = next(entry for entry in entries if entry["key"] == key)
        if "status" in fields:
            entry["metadata"]["status"] = fields["status"]
        else:
            entry.update(fields)

    return change


def stop_before_start(entries: Lines) -> None:
    """A negative duration."""
    start = next(entry for entry in entries if entry["key"] == "run_start")
    next(entry for entry in entries if entry["key"] == "run_stop")["time_ms"] = start["time_ms"] - 5000


LET_PASS = {
    "missing seed": (without("seed"), "no seed"),
    "aborted": (put("run_stop", status="aborted"), "did not reach its target"),
    "stop before start": (stop_before_start, "not later than run_start"),
    "eval_start missing": (without("eval_start"), "eval_stop without eval_start"),
    "eval_stop missing": (without("eval_stop"), "again, before eval_stop"),
    "the clock goes back": (put("block_stop", time_ms=1), "the clock goes back"),
}
"""What the official checker accepts, and our rules do not."""

BOTH_REFUSE = {
    "no run_stop": (without("run_stop"), "run_stop stands there 0 times"),
    "no init_start": (without("init_start"), "init_start stands there 0 times"),
    "half an hour of init": (put("init_start", time_ms=1), "minutes after init_start"),
}


def test_an_exported_run_keeps_our_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = bert_log(tmp_path)
    assert check_files([path]) == []
    assert main(["mllog-check", str(path)]) == 0
    entries, _ = parse(path.read_text())
    keys = [entry.key for entry in entries]
    assert keys[:2] == ["cache_clear", "init_start"] and keys[-1] == "run_stop" and keys.count("eval_accuracy") == 3
    last = [entry for entry in entries if entry.key == "eval_accuracy"][-1]
    assert last.value == 0.7215 and last.metadata["samples_count"] == 120 * 8 * 2
    start, stop = (next(entry for entry in entries if entry.key == key) for key in ("run_start", "run_stop"))
    assert (stop.time_ms - start.time_ms) / 1000 == pytest.approx(12 + 3 * 0.301, abs=0.3)
    capsys.readouterr()


@OFFICIAL
def test_the_official_checker_accepts_an_exported_bert_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = bert_log(tmp_path)
    assert check_officially(path, RULESET).accepted
    assert main(["mllog-check", str(path), "--ruleset", RULESET]) == 0
    assert "accepted" in capsys.readouterr().out


@OFFICIAL
def test_a_rule_set_without_the_benchmark_is_a_sentence_or_a_refusal(tmp_path: Path) -> None:
    path = bert_log(tmp_path)
    assert not check_officially(path, "5.1.0").accepted
    with pytest.raises(UsageProblem, match="no verdict by rule set"):
        check_officially(path, "no-such-set")


@pytest.mark.parametrize("name", [*LET_PASS, *BOTH_REFUSE])
def test_our_rules_refuse(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    change, sentence = (LET_PASS | BOTH_REFUSE)[name]
    path = edited(bert_log(tmp_path), change)  # type: ignore[arg-type]
    assert any(sentence in problem for problem in check_files([path])), check_files([path])
    assert main(["mllog-check", str(path)]) == 1
    assert sentence in capsys.readouterr().out


@OFFICIAL
def test_what_the_official_checker_lets_pass(tmp_path: Path) -> None:
    """Three of docs/ci.md's table; each costs a process."""
    for name in ("missing seed", "aborted", "stop before start"):
        path = edited(bert_log(tmp_path / name.replace(" ", "-")), LET_PASS[name][0])  # type: ignore[arg-type]
        assert check_officially(path, RULESET).accepted, name
        assert check_files([path])


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_does_not_know_is_refused(tmp_path: Path, constant: str) -> None:
    path = bert_log(tmp_path)
    path.write_text(path.read_text().replace('"value": 0.7215', f'"value": {constant}'))
    assert any(f"{constant} is no number" in problem for problem in check_files([path]))


def test_a_run_that_went_astray_is_exported_as_aborted_and_refused(tmp_path: Path) -> None:
    path = bert_log(tmp_path, quality=(0.3, 0.4, 0.5))
    assert '"status": "aborted"' in path.read_text()
    assert any("did not reach" in problem for problem in check_files([path]))


def test_an_evaluation_that_is_not_finite_is_exported_as_text_and_refused(tmp_path: Path) -> None:
    path = bert_log(tmp_path, faults=("nan_quality",))
    assert any("eval_accuracy is 'nan', not a finite number" in problem for problem in check_files([path]))


def test_two_runs_with_one_seed_are_told(tmp_path: Path) -> None:
    one, two = bert_log(tmp_path / "a"), bert_log(tmp_path / "b")
    two = two.rename(two.with_name("result_1.txt"))
    assert any("seed 1 is that of result_0.txt too" in problem for problem in check_files([one, two]))


@given(st.text(max_size=60))
def test_any_text_is_entries_or_sentences(text: str) -> None:
    entries, problems = parse(f"0: {TOKEN}{text}")
    assert len(entries) + len(problems) >= 1
    assert all(isinstance(problem, str) for problem in check(entries))


def test_a_broken_stream_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, plan = real_session(tmp_path / "s")
    (folder / plan.id / "r1" / "events" / "rank0.jsonl").write_text("{}\n")
    assert main(["export", "mllog", str(folder), "--output", str(tmp_path / "logs")]) == 4
    assert "rank0.jsonl:1" in capsys.readouterr().err
