"""A Python configuration is read, never run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.errors import UsageProblem
from tools.python_values import read_assignments


def read(folder: Path, text: str | bytes) -> tuple[dict[str, object], dict[str, str]]:
    """Values, and what was skipped with the reason."""
    path = folder / "conf.py"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = read_assignments(path)
    return dict(found.values), {item.name: item.why for item in found.skipped}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("'a' + \"b\"", "ab"),
        ("'a' 'b'", "ab"),
        ('" --device=/dev/x0" + \\\n    " --device=/dev/x1"', " --device=/dev/x0 --device=/dev/x1"),
        ("1388270 * 4", 5553080),
        ("600 * 8 * 4", 19200),
        ("-1", -1),
        ("1e-5", 1e-5),
        ("None", None),
        ("['h1', 'h2'] + ['h3']", ["h1", "h2", "h3"]),
        ("('h1', 2)", ["h1", 2]),
        ("{'a': 1, 'a': 2}", {"a": 2}),
        ("f'{BASE}/result'", "/opt/result"),
        ("BASE + '/result'", "/opt/result"),
        ("7 // 2", 3),
    ],
)
def test_constants_and_simple_expressions_are_read(tmp_path: Path, expression: str, value: object) -> None:
    values, skipped = read(tmp_path, f"BASE = '/opt'\nX = {expression}\n")
    assert values["X"] == value
    assert skipped == {}


@pytest.mark.parametrize(
    "expression",
    [
        "open('/etc/passwd').read()",
        "__import__('os').environ['HOME']",
        "[x for x in 'ab']",
        "lambda: 1",
        "UNKNOWN",
        "{1: 'a'}",
        "{**BASE}",
        "f'{BASE!r}'",
        "f'{BASE:>9}'",
        "2 ** 10",
        "9223372036854775807 * 9",
        "1 / 0",
        "'a' * 3",
        "'a' + 1",
        "True + 1",
        "b'x'",
        "1j",
        "-'a'",
    ],
)
def test_anything_else_is_named_and_left_out(tmp_path: Path, expression: str) -> None:
    values, skipped = read(tmp_path, f"BASE = '/opt'\nX = {expression}\n")
    assert values == {"BASE": "/opt"}
    assert skipped["X"]


def test_nothing_is_executed(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    values, skipped = read(
        tmp_path, f"import os\nX = open({str(witness)!r}, 'w')\nopen({str(witness)!r}, 'w')\nY = 1\n"
    )
    assert not witness.exists()
    assert values == {"Y": 1}
    assert len(skipped) == 2


@pytest.mark.parametrize(
    "change",
    [
        "CASES['b'] = 2",
        "CASES.update(b=2)",
        "if 1:\n    CASES = {}",
        "for CASES in []:\n    pass",
        "CASES += {}",
        "del CASES",
        "CASES = CASES['a'] = 1",
        "import x; CASES |= x.y",
    ],
)
def test_a_value_that_is_changed_later_is_not_believed(tmp_path: Path, change: str) -> None:
    values, skipped = read(tmp_path, f"CASES = {{'a': 1}}\n{change}\n")
    assert "CASES" not in values
    assert any("CASES" in name for name in skipped)


def test_later_assignments_win_and_annotations_are_understood(tmp_path: Path) -> None:
    values, _ = read(tmp_path, "lr: float = 1e-5\nlr = 2e-5\nname: str\n")
    assert values == {"lr": 2e-5}


def test_a_coding_line_is_honoured(tmp_path: Path) -> None:
    values, _ = read(tmp_path, "# -*- coding: latin-1 -*-\nX = 'ü'\n".encode("latin-1"))
    assert values == {"X": "ü"}


@pytest.mark.parametrize("text", ["X = (", "print 'hello'", "X = 'a\n", b"X = '\xff'\n", b"\0", "(" * 5000])
def test_what_is_not_python_is_one_sentence_with_the_file(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(UsageProblem, match=r"conf\.py"):
        read(tmp_path, text)


def test_doubling_and_deep_nesting_end(tmp_path: Path) -> None:
    values, skipped = read(tmp_path, "X = 'aaaaaaaaaa'\n" + "X = X + X\n" * 60)
    assert "X" not in values
    assert "X" in skipped
    values, skipped = read(tmp_path, "Y = 1\nX = " + "+".join(["1"] * 900) + "\n")
    assert values["Y"] == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(value=JSON)
def test_every_literal_comes_back(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    source = f"X = {value!r}\n".encode("utf-8", "surrogatepass")
    values, skipped = read(tmp_path_factory.mktemp("conf"), source)
    assert values == {"X": value}
    assert skipped == {}
