"""The event reader: strict about every line but a torn last one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.events import BadEvents, read_events
from suite.rank_stream import read_stream

HEADER = '{"event":"header","schema":1,"rank":0,"world_size":1,"t_wall":5.0,"t_mono":10.0}'


def read(folder: Path, *lines: str, end: str = "\n") -> list[str]:
    path = folder / "rank0.jsonl"
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    return [event.name for event in read_events(path)]


def test_good_stream_and_header_without_t(tmp_path: Path) -> None:
    assert read(tmp_path, HEADER, '{"event":"init_start","t":10.5}') == ["header", "init_start"]


def test_torn_last_line_is_tolerated(tmp_path: Path) -> None:
    assert read(tmp_path, HEADER, '{"event":"init_st', end="") == ["header"]


def test_the_same_line_with_its_newline_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadEvents, match=r"events/rank0\.jsonl:2: not strict JSON"):
        read(tmp_path, HEADER, '{"event":"init_st')


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("nonsense", "not strict JSON"),
        ('{"event":"warning","t":NaN}', "not strict JSON"),
        ('{"event":"steps","t":11,"loss":[Infinity]}', "not strict JSON"),
        ("[1]", "not an object"),
        ('{"event":"warnin","t":11}', "'warnin' is not the name of an event"),
        ('{"t":11}', "None is not the name of an event"),
        ('{"event":"warning"}', "no time t"),
        ('{"event":"warning","t":"11"}', "no time t"),
        ('{"event":"warning","t":true}', "no time t"),
        ('{"event":"warning","t":1e300}', "no time t"),
        ('{"event":"warning","t":9.9}', "t goes back from 10.0 to 9.9"),
        (HEADER, "a second header"),
        ("", "not strict JSON"),
    ],
)
def test_bad_line_names_file_and_line(tmp_path: Path, line: str, sentence: str) -> None:
    with pytest.raises(BadEvents) as caught:
        read(tmp_path, HEADER, line, '{"event":"warning","t":12}')
    assert str(caught.value).startswith("events/rank0.jsonl:2:")
    assert sentence in str(caught.value)


def test_first_line_must_be_the_header(tmp_path: Path) -> None:
    with pytest.raises(BadEvents, match="first line is init_start, not the header"):
        read(tmp_path, '{"event":"init_start","t":1}', HEADER)


def test_absent_empty_and_linked_files(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    with pytest.raises(BadEvents, match="no such file"):
        list(read_events(path))
    path.write_text("")
    with pytest.raises(BadEvents, match="empty, not even a header"):
        read_stream(path, 0)
    link = tmp_path / "rank1.jsonl"
    link.symlink_to(path)
    with pytest.raises(BadEvents, match="no such file"):
        list(read_events(link))


def steps(**over: object) -> str:
    keys = {"first": 1, "count": 2, "step_s": [0.5, 0.5], "data_s": [0.1, 0.1], "samples": 4, "loss": [1.0, 1.0]}
    return json.dumps({"event": "steps", "t": 11.0, "window_s": 1.0, **keys, **over})


def test_window_that_adds_up(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    path.write_text(f"{HEADER}\n{steps()}\n")
    stream = read_stream(path, 0)
    assert (stream.steps, stream.windows[0].samples, stream.losses) == (2, 4, [(1, 1.0), (2, 1.0)])


@pytest.mark.parametrize(
    ("over", "sentence"),
    [
        ({"count": 3}, "count is 3 but step_s holds 2 times"),
        ({"count": -2}, "count is -2, not a whole number"),
        ({"count": 2.0}, "count is 2.0, not a whole number"),
        ({"step_s": [0.5, "0.5"]}, "step_s is not a list of numbers"),
        ({"step_s": [1.5, -0.5]}, "step_s holds a number that is negative"),
        ({"step_s": 1}, "step_s is not a list of numbers"),
        ({"window_s": 1.02}, "step_s adds up to 1 s but window_s is 1.02 s"),
        ({"data_s": [0.1]}, "data_s holds 1 times"),
        ({"data_s": [0.6, 0.1]}, "waited longer for its data than it lasted"),
        ({"samples": None}, "samples is None"),
        ({"samples": "4"}, "samples is '4'"),
        ({"loss": [1.0, "NaN"]}, "loss holds 'NaN'"),
        ({"loss": [1.0] * 3}, "loss is not a list of at most 2"),
        ({"skipped": 3}, "skipped is 3 of 2 steps"),
        ({"t": 10.5, "window_s": 1.0}, "claims 1 s, 0.5 s after the one before it"),
    ],
)
def test_window_that_does_not_add_up(tmp_path: Path, over: dict[str, object], sentence: str) -> None:
    path = tmp_path / "rank0.jsonl"
    path.write_text(f"{HEADER}\n{steps(**over)}\n")
    with pytest.raises(BadEvents) as caught:
        read_stream(path, 0)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("events/rank0.jsonl:2: steps:")


def test_gap_between_windows(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    path.write_text(f"{HEADER}\n{steps()}\n{steps(first=4, t=12.0)}\n")
    with pytest.raises(BadEvents, match="first is 4 after a window that ended at step 2"):
        read_stream(path, 0)


def test_loss_that_is_not_finite_is_found_and_kept_out_of_the_curve(tmp_path: Path) -> None:
    path = tmp_path / "rank0.jsonl"
    path.write_text(f"{HEADER}\n{steps(loss=[1.0, 'inf'])}\n")
    stream = read_stream(path, 0)
    assert (stream.nonfinite_step, stream.losses) == (2, [(1, 1.0)])


@given(st.lists(st.binary(max_size=60), max_size=4), st.booleans())
def test_any_bytes_are_read_or_refused_with_a_place(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], sound: bool
) -> None:
    path = tmp_path_factory.mktemp("any") / "rank0.jsonl"
    path.write_bytes(b"\n".join([HEADER.encode()] * sound + lines))
    try:
        names = [event.name for event in read_events(path)]
    except BadEvents as bad:
        assert str(bad).startswith("events/rank0.jsonl:")
    else:
        assert names[:1] in ([], ["header"])
