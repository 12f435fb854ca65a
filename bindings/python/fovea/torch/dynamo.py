"""Two changes to private classes of Dynamo, without which torch.compile can't trace some modifiers (seen with torch 2.11 to
2.13). It has no public way to say how operators of a user's class are traced: torch.compiler's decorators and
torch.library are for functions and tensors.

1. Operators of traced values: Dynamo has no rule for `~` of an object that is no tensor, and none for a comparison of one with
   a number that it holds as a symbol (one that has changed between calls), or that stands to the left. with_traced() calls
   the methods, as Python would. tests/python/torch/test_as_torch_does.py and test_compile.py fail without it.
2. torch.autograd.Function in a modifier: Dynamo would inline its forward and lose its derivative. refusing() makes that an
   error, as it is in eager mode.

A version of torch in which these classes look different keeps its own behaviour."""

import operator

from .errors import NO_DERIVATIVE
from .vectors import TRACED

# The method of the first operand, and that of the second.
METHODS = {
    operator.invert: ("__invert__",),
    operator.lt: ("__lt__", "__gt__"),
    operator.gt: ("__gt__", "__lt__"),
    operator.le: ("__le__", "__ge__"),
    operator.ge: ("__ge__", "__le__"),
    operator.eq: ("__eq__", "__eq__"),
    operator.ne: ("__ne__", "__ne__"),
}


def is_traced(x) -> bool:
    from torch._dynamo.variables import UserDefinedObjectVariable

    return isinstance(x, UserDefinedObjectVariable) and issubclass(x.python_type(), TRACED)


def with_traced(make_handler):
    """An operator's handlers: for traced values one that calls their method, otherwise Dynamo's own."""

    def make(fn, arg_types, has_kwargs):
        others, names = make_handler(fn, arg_types, has_kwargs), METHODS.get(fn)
        if names is None:
            return others

        def handle(tx, args, kwargs):
            for i, name in enumerate(names):
                if is_traced(args[i]):
                    return args[i].call_method(tx, name, [x for j, x in enumerate(args) if j != i], {})
            return others(tx, args, kwargs)

        return handle

    return make


def refusing(call_apply):
    """torch.autograd.Function.apply that refuses traced values. Without fullgraph=True the call then runs in eager mode, which
    says what is wrong."""
    from torch._dynamo.exc import unimplemented

    def call(self, tx, args, kwargs):
        if any(is_traced(x) for x in (*args, *kwargs.values())):
            operation, instead = NO_DERIVATIVE
            unimplemented(
                gb_type="a torch.autograd.Function in a modifier",
                context="",
                explanation=f"a modifier can't use {operation}",
                hints=[f"instead: {instead}"],
            )
        return call_apply(self, tx, args, kwargs)

    return call


def install():
    try:
        from torch._dynamo.variables.builtin import BuiltinVariable
        from torch._dynamo.variables.misc import AutogradFunctionVariable
    except ImportError:
        return
    if hasattr(BuiltinVariable, "_make_handler"):
        BuiltinVariable._make_handler = staticmethod(with_traced(BuiltinVariable._make_handler))
        getattr(BuiltinVariable, "call_function_handler_cache", {}).clear()  # of what was compiled before
    if hasattr(AutogradFunctionVariable, "call_apply"):
        AutogradFunctionVariable.call_apply = refusing(AutogradFunctionVariable.call_apply)


install()
