"""Reads the assignments of a Python file without running it: constants, and simple expressions over constants."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from suite.errors import UsageProblem

Constant = None | bool | int | float | str | list["Constant"] | dict[str, "Constant"]
"""What an assignment may hold; tuples become lists."""

LARGEST = 2**63 - 1
"""Arithmetic beyond this is refused: a configuration has no such number, and powers of powers do not end."""

LONGEST = 100_000
"""Characters or items of a concatenation; doubling a text forty times does not end either."""

ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """A statement that was not understood, hence left out."""

    name: str
    """What it assigns, or the kind of statement."""
    line: int
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignments:
    """What a file assigns at its top level."""

    path: Path
    values: Mapping[str, Constant]
    skipped: tuple[Skipped, ...]


class NotConstant(Exception):
    """The expression needs more than constants; the message says what."""


def read_assignments(path: Path) -> Assignments:
    """The assignments of `path`, never executed. Raises UsageProblem for what is not readable Python."""
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except OSError as problem:
        raise UsageProblem(f"{path}: cannot be read: {problem.strerror}") from None
    except SyntaxError as problem:
        raise UsageProblem(f"{path}:{problem.lineno or 1}: not Python 3: {problem.msg}; correct that line") from None
    except (ValueError, RecursionError, MemoryError) as problem:
        raise UsageProblem(f"{path}: not a Python configuration: {problem or type(problem).__name__}") from None
    values: dict[str, Constant] = {}
    skipped: list[Skipped] = []
    for statement in tree.body:
        _take(statement, values, skipped)
    return Assignments(path=path, values=values, skipped=tuple(skipped))


def _take(statement: ast.stmt, values: dict[str, Constant], skipped: list[Skipped]) -> None:
    """Put what `statement` assigns into `values`, or say why not."""
    if _is_inert(statement):
        return
    name, expression = _simple_assignment(statement)
    try:
        if name is None or expression is None:
            raise NotConstant(f"{type(statement).__name__} is not an assignment of a constant to a name")
        values[name] = evaluate(expression, values)
    except (NotConstant, RecursionError) as problem:
        names = [name] if name else sorted(_assigned_names(statement))
        # An earlier value of the same name is no longer what Python would see.
        for stale in names:
            values.pop(stale, None)
        label = ", ".join(names) or type(statement).__name__
        skipped.append(Skipped(name=label, line=statement.lineno, why=str(problem) or "nested too deeply"))


def _is_inert(statement: ast.stmt) -> bool:
    """A docstring, an import, a bare annotation or `pass`: nothing is lost by passing over it."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.AnnAssign):
        return statement.value is None
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass)


def _simple_assignment(statement: ast.stmt) -> tuple[str | None, ast.expr | None]:
    """(name, expression) of `name = expression`, also annotated; else (None, None)."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target: ast.expr = statement.targets[0]
    elif isinstance(statement, ast.AnnAssign):
        target = statement.target
    else:
        return None, None
    return (target.id, statement.value) if isinstance(target, ast.Name) else (None, None)


def _assigned_names(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement may bind or change, however deep inside it."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.id
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.value, ast.Name):
            # `CASES["…"] = …` and `CASES.update(…)` change CASES without binding it.
            yield node.value.id


def evaluate(node: ast.expr, known: Mapping[str, Constant]) -> Constant:
    """The value of an expression over constants and the names already `known`. Raises NotConstant."""
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str() as value):
            return value
        case ast.Name(id=name):
            if name not in known:
                raise NotConstant(f"{name} is not known here")
            return known[name]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [evaluate(item, known) for item in items]
        case ast.Dict(keys=keys, values=items):
            return _mapping(keys, items, known)
        case ast.JoinedStr(values=parts):
            return "".join(_formatted(part, known) for part in parts)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(evaluate(operand, known))
        case ast.BinOp(left=left, op=op, right=right):
            return _combine(evaluate(left, known), op, evaluate(right, known))
    raise NotConstant(f"{type(node).__name__} is not evaluated")


def _mapping(keys: list[ast.expr | None], items: list[ast.expr], known: Mapping[str, Constant]) -> dict[str, Constant]:
    """A dict display with text keys; the last of two equal keys wins, as in Python."""
    result: dict[str, Constant] = {}
    for key, item in zip(keys, items):
        name = evaluate(key, known) if key is not None else None
        if not isinstance(name, str):
            raise NotConstant("a key of the mapping is not a text")
        result[name] = evaluate(item, known)
    return result


def _formatted(part: ast.expr, known: Mapping[str, Constant]) -> str:
    """One piece of an f-string, without format specification."""
    if isinstance(part, ast.FormattedValue):
        if part.format_spec is not None or part.conversion != -1:
            raise NotConstant("a format specification in an f-string is not evaluated")
        part = part.value
    value = evaluate(part, known)
    if not isinstance(value, str | int | float):
        raise NotConstant("an f-string holds more than texts and numbers")
    return str(value)


def _number(value: Constant) -> int | float:
    """`value`, if it is a number that a configuration may hold."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        raise NotConstant("arithmetic on something that is not a number of ordinary size")
    return value


def _combine(left: Constant, op: ast.operator, right: Constant) -> Constant:
    """`left op right` for two texts, two lists (+ only) or two numbers (+ - * / //)."""
    if isinstance(op, ast.Add):
        if isinstance(left, str) and isinstance(right, str) and len(left) + len(right) <= LONGEST:
            return left + right
        if isinstance(left, list) and isinstance(right, list) and len(left) + len(right) <= LONGEST:
            return left + right
    function = ARITHMETIC.get(type(op))
    if function is None:
        raise NotConstant(f"the operator {type(op).__name__} is not evaluated")
    try:
        return _number(function(_number(left), _number(right)))
    except ZeroDivisionError:
        raise NotConstant("division by zero") from None
