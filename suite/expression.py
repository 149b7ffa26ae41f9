"""Arithmetic in configuration: parsed and walked, never evaluated as code."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

from suite.errors import did_you_mean

MAX_LENGTH = 200
"""Characters of an expression: also bounds its depth."""
MAX_EXPONENT = 64

_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class ExpressionProblem(ValueError):
    """Why a text is no arithmetic, or has no finite value."""


def evaluate(text: str, names: Mapping[str, float]) -> float:
    """The finite value of `text` over + - * / // % ** and parentheses. Raises ExpressionProblem."""
    if len(text) > MAX_LENGTH:
        raise ExpressionProblem(f"longer than {MAX_LENGTH} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        value = _walk(tree.body, names)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, ExpressionProblem):
            raise
        raise ExpressionProblem("not an arithmetic expression") from None
    except ZeroDivisionError:
        raise ExpressionProblem("divides by zero") from None
    except OverflowError:
        raise ExpressionProblem("too large") from None
    if not math.isfinite(value):
        raise ExpressionProblem("not finite")
    return value


def _walk(node: ast.expr, names: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return float(number)
        case ast.Name(id=name):
            if name not in names:
                raise ExpressionProblem(f"unknown name {name!r}{did_you_mean(name, names)}")
            return float(names[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_walk(operand, names)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _walk(operand, names)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_walk(left, names), _walk(right, names))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_walk(left, names), _walk(right, names))
    raise ExpressionProblem(f"{ast.unparse(node)!r} is not arithmetic; + - * / // % ** and parentheses are")


def _power(base: float, exponent: float) -> float:
    if abs(exponent) > MAX_EXPONENT:
        raise ExpressionProblem(f"exponent {exponent:g} is beyond {MAX_EXPONENT}")
    value = base**exponent
    if isinstance(value, complex):
        raise ExpressionProblem(f"{base:g} ** {exponent:g} is not a real number")
    return float(value)
