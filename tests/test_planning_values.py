"""Small grammars of planning: arithmetic, names of configurations, environment files, the table of cases."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.cases_table import read_cases
from suite.config_name import config_name, parse_config_name
from suite.envfile import read_environment
from suite.errors import UsageProblem
from suite.expression import ExpressionProblem, evaluate
from suite.layers import keep_type, parse_as
from suite.topology import Topology

NUMBERS = st.integers(-1000, 1000).map(float)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("600", 600),
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("-world ** 2", -256),
        ("600 / nnodes", 300),
        ("7 // 2 + 7 % 2", 4),
        ("6.4 * nproc / 8", 6.4),
        (" world ", 16),
        ("2 ** -1", 0.5),
    ],
)
def test_arithmetic(text: str, value: float) -> None:
    assert evaluate(text, {"nnodes": 2, "nproc": 8, "world": 16}) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not an arithmetic expression"),
        ("1 +", "not an arithmetic expression"),
        ("1\n+1", "not an arithmetic expression"),
        ("\x00", "not an arithmetic expression"),
        ("(" * 150, "not an arithmetic expression"),
        ("__import__('os')", "is not arithmetic"),
        ("world.real", "is not arithmetic"),
        ("[1][0]", "is not arithmetic"),
        ("True", "is not arithmetic"),
        ("'a' * 9", "is not arithmetic"),
        ("1j", "is not arithmetic"),
        ("1 if world else 2", "is not arithmetic"),
        ("1 << 60", "is not arithmetic"),
        ("wrld", "unknown name 'wrld' (did you mean 'world'?)"),
        ("1 / (world - 4)", "divides by zero"),
        ("9 ** 9 ** 9", "exponent"),
        ("(9.0 ** 64) ** 64", "too large"),
        ("1e308 * 10", "not finite"),
        ("(-8) ** 0.5", "not a real number"),
        ("1 + " * 80 + "1", "longer than"),
    ],
)
def test_what_is_not_arithmetic_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ExpressionProblem) as caught:
        evaluate(text, {"world": 4})
    assert reason in str(caught.value)


@given(NUMBERS, NUMBERS, NUMBERS, st.sampled_from("+-*"), st.sampled_from("+-*"))
def test_arithmetic_agrees_with_python(a: float, b: float, c: float, first: str, second: str) -> None:
    apply = {"+": operator.add, "-": operator.sub, "*": operator.mul}
    assert evaluate(f"(a {first} b) {second} c", {"a": a, "b": b, "c": c}) == apply[second](apply[first](a, b), c)


@given(st.text(max_size=40))
def test_any_text_has_a_value_or_a_reason(text: str) -> None:
    try:
        assert isinstance(evaluate(text, {"x": 1.0}), float)
    except ExpressionProblem as problem:
        assert str(problem)


MACHINES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.x-]{0,12}", fullmatch=True)


@given(MACHINES, st.integers(1, 4096), st.integers(1, 64))
def test_a_configuration_name_is_read_back_from_the_right(machine: str, nnodes: int, nproc: int) -> None:
    topology = Topology(nnodes=nnodes, nproc=nproc)
    assert parse_config_name(config_name(machine, topology)) == (machine, topology)


@pytest.mark.parametrize(
    "name",
    [
        "config_A100.toml",
        "config_A100x8.toml",
        "config_x1x8.toml",
        "config_A100x0x8.toml",
        "A100x1x8.toml",
        "config_A100x1x08.toml",
    ],
)
def test_other_names_are_no_configurations(name: str) -> None:
    with pytest.raises(UsageProblem, match="no configuration's name"):
        parse_config_name(name)


@pytest.mark.parametrize(
    ("old", "text", "value"),
    [
        (0.5, "3", 3.0),
        (0.5, "1e-3", 0.001),
        (0.5, ".5", 0.5),
        (8, "16", 16),
        (8, "1_000", 1000),
        (False, "true", True),
        ("toy", "3", "3"),
        ("toy", "", ""),
        ((0.9, 0.99), "[0.8, 1]", (0.8, 1.0)),
    ],
)
def test_an_option_takes_the_type_of_what_it_replaces(old: object, text: str, value: object) -> None:
    new = parse_as(old, text)  # type: ignore[arg-type]
    assert (new, type(new)) == (value, type(value))


@pytest.mark.parametrize(
    ("old", "text"),
    [
        (0.5, "x"), (0.5, ""), (0.5, "nan"), (0.5, "1e999"), (0.5, "true"), (0.5, "١"),
        (8, "1.5"), (8, "true"), (8, "x"),
        (False, "1"), (False, "True"), ((0.9,), "0.9"), ((0.9,), "['a']"),
        ((0.9,), "[[1.0]]"), ((0.9,), "[1.0]\nx = 1"),
    ],
)  # fmt: skip
def test_an_option_of_another_type_is_refused(old: object, text: str) -> None:
    with pytest.raises(ValueError):
        parse_as(old, text)  # type: ignore[arg-type]


SCALARS = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5))


@given(SCALARS, SCALARS)
def test_a_layer_never_changes_a_type(old: object, new: object) -> None:
    try:
        kept = keep_type(old, new)  # type: ignore[arg-type]
    except ValueError:
        assert type(old) is not type(new)
        return
    assert type(kept) is type(old)
    assert kept == new or isinstance(old, float)


def environment(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "environment_variables.sh"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return read_environment(path, "acme/environment_variables.sh")


def test_an_environment_file_is_parsed(tmp_path: Path) -> None:
    lines = [
        "#!/bin/sh",
        "",
        "# comment",
        "export A=1",
        "  export B='two words' # why",
        r'export C="x=\"\$\""',
        "export D=",
        "export HCA=mlx5_0:1,mlx5_1#2\r",
        "export MIX=a'b c'\"d\"",
        "export A=2",
    ]
    assert environment(tmp_path, "\n".join(lines)) == {
        "A": "2", "B": "two words", "C": 'x="$"', "D": "", "HCA": "mlx5_0:1,mlx5_1#2", "MIX": "ab cd",
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [
        "A=1", "export A", "export A=$(id)", "export A=`id`", 'export A="$HOME"', "export A=$B", "export A=~/x",
        "source /opt/set_env.sh", ". /opt/set_env.sh",
        "export A=1; id", "export A=1 && id", "export A=1 | id",
        "export A=1 B=2", "export A='x", 'export A="x', "export A=a b", "export A=x > /tmp/y",
        "export 1A=1", "export A =1", "ulimit -n 5",
        "export A=\\\n", "export A=1 \udcff",
    ],
)  # fmt: skip
def test_what_needs_a_shell_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(UsageProblem, match=r"acme/environment_variables\.sh:2: "):
        environment(tmp_path, f"export OK=1\n{line}\n")


@pytest.mark.parametrize("name", ["RANK", "MASTER_PORT", "TRAINMARK_RUN"])
def test_the_launchers_own_variables_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageProblem, match=f":1: {name} is set by the launcher"):
        environment(tmp_path, f"export {name}=1\n")


def test_the_table_of_cases_keeps_its_order(tmp_path: Path) -> None:
    path = tmp_path / "cases.toml"
    path.write_text('"glm:pytorch:A100:2:8:3" = "/data/glm"\n"bert:pytorch:BI-V100:1:1:1" = ""\n')
    rows = read_cases(path)
    assert [(row.model, row.machine, str(row.topology), row.repeat, row.data_dir) for row in rows] == [
        ("glm", "A100", "2x8", 3, "/data/glm"),
        ("bert", "BI-V100", "1x1", 1, ""),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no rows"),
        ('"glm:pytorch:A100:1:8" = ""', "not <model>:<framework>"),
        ('"glm:pytorch:A100:1:0:1" = ""', "not <model>:<framework>"),
        ('"glm:pytorch:A100:1:8:1" = 3', "the data folder is text"),
        ('"glm:pytorch:A100:1:8:1" = ""\n"glm:pytorch:A100:1:8:2" = ""', "a second row"),
        ('"glm:pytorch:A100:1:8:1" = ""\n= 3', ":2: not valid TOML"),
    ],
)
def test_a_bad_table_of_cases_names_file_and_row(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "cases.toml"
    path.write_text(text)
    with pytest.raises(UsageProblem) as caught:
        read_cases(path)
    assert str(caught.value).startswith(str(path)) and reason in str(caught.value)
