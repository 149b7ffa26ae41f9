"""What Slurm says is read without ever raising: rare states, odd ids, requeued and heterogeneous jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.slurm_script import JobRequest, batch_script, job_name, sbatch_argv, step_argv, time_limit
from fixtures.slurm_site import SlurmTable
from fixtures.slurm_states import JobView, base_id, newest, outcome_of, parse_sacct, parse_scontrol, phase_of

LINE = (
    "JobId=12 JobName=tm-x UserId=u(1) JobState={state} Reason={reason} Dependency=(null) RunTime=00:01:02"
    " TimeLimit=00:10:00 NodeList=n[1-2] BatchHost=n1 TRES=cpu=2,node=2 Comment=a note JobState=FAILED of another"
)


def view(state: str, reason: str = "None") -> JobView:
    """One parsed line."""
    return parse_scontrol(LINE.format(state=state, reason=reason))[0]


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("PENDING", "pending"),
        ("CONFIGURING", "pending"),
        ("REQUEUED", "pending"),
        ("REQUEUE_HOLD", "pending"),
        ("SPECIAL_EXIT", "pending"),
        ("NEVER_HEARD_OF", "pending"),
        ("", "pending"),
        ("RUNNING", "running"),
        ("SUSPENDED", "running"),
        ("COMPLETING", "running"),
        ("STOPPED", "running"),
        ("COMPLETED", "ended"),
        ("NODE_FAIL", "ended"),
        ("OUT_OF_MEMORY", "ended"),
    ],
)
def test_an_unknown_state_waits(state: str, phase: str) -> None:
    assert phase_of(state) == phase


@given(st.text())
def test_no_text_makes_the_readers_raise(text: str) -> None:
    found = [*parse_scontrol(text), *parse_sacct(text), *parse_scontrol(f"JobState={text}")]
    newest(found)
    for each in found:
        outcome_of("1", each)
        assert each.phase in ("pending", "running", "ended") and each.hopeless in (True, False)
    assert base_id(text) == "" or base_id(text).isdecimal()


@pytest.mark.parametrize(
    "text", ["12", "12;cluster", "12_3", "12+0", "12.batch", "12+1.0", "12_[0-3%2]", "12_[1,3]", " 12\n"]
)
def test_ids_of_every_kind_name_their_job(text: str) -> None:
    assert base_id(text) == "12"


def test_a_field_that_comes_again_in_a_comment_does_not_count() -> None:
    found = view("RUNNING")
    assert (found.state, found.nodes, found.fields["TRES"]) == ("RUNNING", "n[1-2]", "cpu=2,node=2")


@pytest.mark.parametrize(
    ("state", "category"),
    [
        ("CANCELLED", "interrupted"),
        ("REVOKED", "interrupted"),
        ("TIMEOUT", "timeout"),
        ("DEADLINE", "timeout"),
        ("NODE_FAIL", "lost_node"),
        ("BOOT_FAIL", "lost_node"),
        ("PREEMPTED", "preempted"),
        ("OUT_OF_MEMORY", "out_of_memory"),
    ],
)
def test_the_state_decides_and_not_the_exit_code(state: str, category: str) -> None:
    outcome = outcome_of("12", view(state), ["n2"])
    assert outcome is not None and (outcome.status, outcome.category) == ("error", category)
    assert "12" in outcome.reason


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "RUNNING", "PENDING", "WHATEVER"])
def test_other_states_leave_the_word_to_the_ranks(state: str) -> None:
    assert outcome_of("12", view(state)) is None


def test_who_cancelled_is_told_where_accounting_knows() -> None:
    found = parse_sacct("JobID|State|ExitCode\n12|CANCELLED by 1000|0:15\n")[0]
    outcome = outcome_of("12", found)
    assert outcome is not None and outcome.reason == "Slurm job 12 was cancelled by user 1000"
    assert parse_sacct("JobID|State\n12|NODE_FAIL+\n")[0].state == "NODE_FAIL"


@pytest.mark.parametrize(
    ("reason", "never"),
    [
        ("PartitionNodeLimit", True),
        ("PartitionTimeLimit", True),
        ("InvalidAccount", True),
        ("ReqNodeNotAvail,_UnavailableNodes:n2", True),
        ("QOSMaxGRESPerJob", True),
        ("AssocMaxNodePerJobLimit", True),
        ("QOSMaxWallDurationPerJobLimit", True),
        ("Priority", False),
        ("Resources", False),
        ("QOSMaxJobsPerUserLimit", False),
        ("AssocGrpGRES", False),
        ("BeginTime", False),
        ("None", False),
        ("Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved", False),
    ],
)
def test_reasons_that_no_time_removes(reason: str, never: bool) -> None:
    assert view("PENDING", reason).hopeless is never
    assert view("RUNNING", reason).hopeless is False


def test_an_array_or_a_heterogeneous_job_is_as_bad_as_its_worst_part() -> None:
    lines = ["JobId=12 ArrayTaskId=0 JobState=COMPLETED", "JobId=13 ArrayTaskId=1 JobState=TIMEOUT"]
    assert newest(parse_scontrol("\n".join(lines))).state == "TIMEOUT"  # type: ignore[union-attr]
    lines[0] = "JobId=12 ArrayTaskId=0 JobState=RUNNING"
    assert newest(parse_scontrol("\n".join(lines))).state == "RUNNING"  # type: ignore[union-attr]


def test_a_stale_record_of_a_requeued_job_gives_way_to_the_newer_one() -> None:
    text = "JobID|State\n12|REQUEUED\n12|CANCELLED by 0\n"
    assert newest(parse_sacct(text)).state == "CANCELLED"  # type: ignore[union-attr]
    assert newest([]) is None


def request(**over: object) -> JobRequest:
    """Two nodes of eight."""
    fields = {"name": "glm-x-2x8", "run": "20260101T000000Z-ab12-cafe0123", "nodes": 2, "nproc": 8, "time_s": 3601}
    return JobRequest(**{**fields, "folder": Path("/shared/a b"), **over})  # type: ignore[arg-type]


def test_every_field_of_the_site_becomes_one_word() -> None:
    table = SlurmTable(
        account="lab", partition="gpu", qos="high", constraint="a&b", reservation="r1", gres="gpu:h:{nproc}", mem="0",
        gpus_per_node="{nproc}", cpus_per_task=32, exclusive=True, comment="our note", extra=("--switches=1",),
        signal="USR1@120", export=("PATH", "TOKEN"),
    )  # fmt: skip
    argv = sbatch_argv(request(), table, Path("/shared/a b/job.sh"))
    for word in (
        "--account=lab", "--partition=gpu", "--qos=high", "--constraint=a&b", "--reservation=r1", "--gres=gpu:h:8",
        "--gpus-per-node=8", "--cpus-per-task=32", "--mem=0", "--exclusive", "--switches=1", "--signal=USR1@120",
        "--nodes=2", "--ntasks-per-node=1", "--time=0-01:01:00", "--no-requeue", "--export=PATH,TOKEN",
        "--output=/shared/a b/%x-%j.log", "--comment=our note trainmark 20260101T000000Z-ab12-cafe0123",
        "--job-name=tm-glm-x-2x8-cafe0123",
    ):  # fmt: skip
        assert word in argv
    assert argv[-1] == "/shared/a b/job.sh"
    bare = sbatch_argv(request(), SlurmTable(export=()), Path("j"))
    assert "--export=NONE" in bare and not any(word.startswith(("--account", "--mem", "--gres")) for word in bare)


def test_the_script_quotes_what_it_runs_and_loads_modules() -> None:
    argv = step_argv("/usr/bin/srun", 2, ("/a b/python", "relay.py", "it's"))
    text = batch_script(SlurmTable(modules=("gcc/13.2",)), argv)
    assert "module load gcc/13.2 || exit 97" in text
    assert text.splitlines()[-1].startswith("exec /usr/bin/srun ") and "'/a b/python'" in text
    assert "'it'\"'\"'s'" in text
    inside = step_argv("srun", 1, ("t",), job="9", hosts=("n1",))
    assert "--jobid=9" in inside and "--overlap" in inside and "--nodelist=n1" in inside
    assert "module" not in batch_script(SlurmTable(), argv)


@pytest.mark.parametrize(
    ("seconds", "text"), [(1, "0-00:01:00"), (3600, "0-01:00:00"), (90061, "1-01:02:00"), (0, "0-00:01:00")]
)
def test_the_time_limit_is_rounded_up_to_minutes(seconds: float, text: str) -> None:
    assert time_limit(seconds) == text


def test_a_job_name_is_safe_in_a_file_name() -> None:
    assert job_name(request(name="a/b c")) == "tm-a_b_c-cafe0123"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"extra": ("--time=5",)}, "set by the suite itself"),
        ({"extra": ("-N4",)}, "set by the suite itself"),
        ({"extra": ("rm",)}, "no option"),
        ({"export": ("A=b",)}, "values are never written"),
        ({"signal": "KILL@3"}, "USR1@120"),
        ({"modules": ("gcc; rm",)}, "no name of a module"),
        ({"comment": "a\nb"}, "control character"),
        ({"queue_s": 0.0}, "greater than 0"),
        ({"no_such_key": 1}, "Extra inputs"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(table: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        SlurmTable(**table)  # type: ignore[arg-type]
