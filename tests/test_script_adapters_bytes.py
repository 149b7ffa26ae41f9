"""Log adapters and torn, mixed, labelled and broken streams of bytes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from suite.drivers.scripts.adapters import ADAPTERS
from suite.drivers.scripts.adapters.reader import LabelledLog, LogReader
from suite.drivers.scripts.adapters.text import Lines, clean, clock_seconds, number, whole_number
from tests.adapter_logs import ALMA_TWO_NODES, NEMO, bar, named, read_bytes, trainer_log

LOG = trainer_log()
CUTS = st.lists(st.integers(1, len(LOG) - 1), max_size=40)
NOTHING = ADAPTERS["tqdm"]


@settings(max_examples=60, deadline=None)
@given(CUTS)
def test_any_cut_of_the_stream_gives_the_same_events(cuts: list[int]) -> None:
    assert read_bytes("hf_trainer", LOG, cuts) == read_bytes("hf_trainer", LOG)


def test_byte_by_byte_is_such_a_cut() -> None:
    assert read_bytes("hf_trainer", LOG, range(len(LOG))) == read_bytes("hf_trainer", LOG)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200), st.integers(0, len(LOG)))
def test_what_is_no_text_spoils_at_most_its_own_line(noise: bytes, place: int) -> None:
    place = LOG.rfind(b"\n", 0, place) + 1
    noisy = LOG[:place] + noise.replace(b"{", b"(").replace(b"*", b"-") + b"\n" + LOG[place:]
    stop = read_bytes("hf_trainer", noisy)[-1]
    assert (stop["step"], stop["status"]) == (40, "success")


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(ADAPTERS)), st.binary(max_size=400), st.integers(-64, 255))
def test_no_bytes_at_all_raise(name: str, data: bytes, code: int) -> None:
    last = read_bytes(name, data, range(0, len(data), 7), code=code)[-1]
    assert last["event"] == "run_stop"
    assert last["status"] == "aborted", "a log without a step of training is no success"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(LOG.decode().splitlines()), max_size=60))
def test_lines_in_any_order_never_go_back(lines: list[str]) -> None:
    events = read_bytes("hf_trainer", "\n".join(lines).encode())
    windows = named(events, "steps")
    ends = [int(str(w["first"])) + int(str(w["count"])) for w in windows]
    assert [int(str(w["first"])) for w in windows] == [1, *ends[:-1]][: len(windows)]
    assert len(named(events, "run_start")) <= 1
    assert [event["event"] for event in events].count("run_stop") == 1


def test_a_bar_is_read_while_its_step_still_lasts() -> None:
    reader = LogReader(ADAPTERS["nemo"]())
    reader.feed(b"\rEpoch 0: :   0%|          | 0/10050 [00:00<?, ?it/s]", 1.0)
    told = reader.feed(b"\r" + NEMO.encode(), 2400.0)
    assert [event["t"] for event in named(told, "steps")] == [2400.0]
    assert named(reader.feed(b"\r" + NEMO.encode(), 2413.4), "steps") == [], "drawn again, it is the same step"


def test_a_line_without_end_does_not_eat_the_memory() -> None:
    lines = Lines()
    for _ in range(20):
        lines.feed(b"x" * 200_000)
    assert len(lines.begun()) <= 1 << 20


def test_colours_cursors_and_titles_are_no_text() -> None:
    assert clean("\x1b[1;32mloss\x1b[0m\x1b[A\x1b]0;title\x07 = \x001\x08") == "loss = 1"


def test_numbers() -> None:
    assert [whole_number(text) for text in ("15,406", "960", " 8 ", "15,4", "1.5", "", "9" * 30)] == [
        *(15406, 960, 8, None, None, None, None),
    ]
    assert [number(text) for text in ("'0.5'", "1e-05", "-inf", ".5", "1,5", "0x10", "")] == [
        *(0.5, 1e-05, float("-inf"), 0.5, None, None, None),
    ]
    assert [clock_seconds(text) for text in ("27:08", "37:16:04", "1 day, 2:03:04", "?", "8")] == [
        *(1628.0, 134164.0, 93784.0, None, None),
    ]


# --- srun -l


def labelled(task: int, lines: list[str], width: int = 1) -> list[str]:
    """Lines as srun labels them: number, colon, blank."""
    return [f"{task:>{width}}: {line}" for line in lines]


def task_lines(drawn: tuple[int, ...] = (0, 20, 64)) -> list[str]:
    """The guide's two-node log of one task, with some of its bars."""
    return [*ALMA_TWO_NODES, *(bar(step, 64) for step in drawn)]


def read_labelled(data: bytes, piece: int = 1000) -> dict[int, list[dict[str, object]]]:
    """The events of every task."""
    log = LabelledLog(ADAPTERS["hf_trainer"])
    told = [pair for at in range(0, len(data), piece) for pair in log.feed(data[at : at + piece], 1.0)]
    told += log.finish(0, 1.0)
    return {task: [event for number, event in told if number == task] for task in log.tasks}


def test_two_tasks_that_are_interleaved_are_told_apart() -> None:
    zero, one = labelled(0, task_lines((0, 20, 64))), labelled(1, task_lines((0, 33, 64)))
    mixed = [line for pair in zip(zero, one) for line in pair]
    tasks = read_labelled("\n".join(mixed).encode())
    assert set(tasks) == {0, 1}
    for task, first in ((0, 20), (1, 33)):
        assert [window["count"] for window in named(tasks[task], "steps")] == [first, 64 - first]
        assert named(tasks[task], "init_stop")[0]["trainable"] == 7_733_248
        assert named(tasks[task], "run_start")[0]["data_parallel"] == 16


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 200), st.randoms(use_true_random=False))
def test_any_mixture_of_tasks_and_any_cut(piece: int, chance: object) -> None:
    queues = {task: labelled(task, task_lines(), width=2) for task in (0, 7, 12)}
    mixed = []
    while any(queues.values()):
        task = chance.choice([task for task, queue in queues.items() if queue])  # type: ignore[attr-defined]
        mixed.append(queues[task].pop(0))
    tasks = read_labelled("\n".join(mixed).encode(), piece)
    alone = read_labelled("\n".join(labelled(7, task_lines(), width=2)).encode())[7]
    assert set(tasks) == {0, 7, 12}
    assert all(events == alone for events in tasks.values())


def test_drawings_of_a_bar_within_one_labelled_line() -> None:
    line = "0: \r" + "\r".join(bar(step, 64) for step in (0, 1, 2, 2, 5)) + "\n"
    data = "\n".join([*labelled(0, list(ALMA_TWO_NODES)), line]).encode()
    assert [window["count"] for window in named(read_labelled(data)[0], "steps")] == [1, 1, 3]


def test_torn_halves_and_unlabelled_lines_are_nobodys() -> None:
    whole = labelled(0, task_lines())
    at = whole[-2].index("/64")
    torn = [*whole[:-2], whole[-2][:at], f"0: {whole[-2][at:]}", "slurmstepd: error: *** STEP ***", whole[-1]]
    tasks = read_labelled("\r\n".join(torn).encode())
    assert [window["count"] for window in named(tasks[0], "steps")] == [64], "the torn drawing is not read, the next is"
    assert named(tasks[0], "run_stop")[0]["status"] == "success"


def test_a_task_that_draws_no_bar_shows_no_training() -> None:
    data = "\n".join([*labelled(0, task_lines()), *labelled(1, list(ALMA_TWO_NODES))]).encode()
    tasks = read_labelled(data)
    assert named(tasks[0], "run_stop")[0]["status"] == "success"
    assert named(tasks[1], "run_stop")[0]["status"] == "aborted"
