"""A plugin of mypy: `sum` of floats is an error. Since Python 3.12 it rounds otherwise than before."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mypy.maptype import map_instance_to_supertype
from mypy.nodes import Expression, GeneratorExpr, ListComprehension
from mypy.plugin import FunctionContext, Plugin
from mypy.types import Instance, Type, UnionType, flatten_nested_unions, get_proper_type

SENTENCE = "sum() of floats rounds as the Python that runs it; say exact_sum() of suite.rounding"


class ExactSums(Plugin):
    """Looks at what every `sum` adds up: whole numbers are the same everywhere."""

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        """What mypy calls where a function of that name is called."""
        return _judged if fullname == "builtins.sum" else None


def _judged(context: FunctionContext) -> Type:
    # An error in one overload sends mypy to the next, so each is refused, and the last refusal is the one that shows.
    added = [item for argument in zip(context.args[0], context.arg_types[0]) for item in _items(context, *argument)]
    if any(kind.type.fullname == "builtins.float" for one in added for kind in _kinds(one)):
        context.api.fail(SENTENCE, context.context)
    return context.default_return_type


def _items(context: FunctionContext, argument: Expression, found: Type) -> Iterator[Type]:
    """What iterating over the argument gives; mypy types a generator as the overload wishes, but not its parts."""
    argument = argument.generator if isinstance(argument, ListComprehension) else argument
    if isinstance(argument, GeneratorExpr):
        yield context.api.get_expression_type(argument.left_expr)
    for kind in _kinds(found):
        for base in kind.type.mro:
            if base.fullname == "typing.Iterable":
                yield map_instance_to_supertype(kind, base).args[0]


def _kinds(found: Type) -> Iterator[Instance]:
    """The classes that a type may be of."""
    proper = get_proper_type(found)
    for part in flatten_nested_unions(proper.items) if isinstance(proper, UnionType) else [proper]:
        if isinstance(kind := get_proper_type(part), Instance):
            yield kind


def plugin(version: str) -> type[Plugin]:
    """What mypy asks for."""
    return ExactSums
