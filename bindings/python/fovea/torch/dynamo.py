"""What Dynamo lacks for modifiers, up to torch 2.13: `~` of an object that is no tensor; its comparison with a number that
has changed between calls (`==` is False there, `<` a crash); and a refusal of functions with a derivative of their own,
whose forward it would inline. Imported once; a version of torch that is built otherwise keeps what it has."""

from .errors import NO_DERIVATIVE
from .vectors import TRACED


def invert(self, tx, x):
    """As Dynamo does the other operators of one operand; None lets it go on by itself."""
    from torch._dynamo.variables import UserDefinedObjectVariable

    return x.call_method(tx, "__invert__", [], {}) if isinstance(x, UserDefinedObjectVariable) else None


def is_traced(x) -> bool:
    from torch._dynamo.variables import UserDefinedObjectVariable

    return isinstance(x, UserDefinedObjectVariable) and issubclass(x.python_type(), TRACED)


MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


def comparing(compare_symbols):
    def compare(self, tx, left, right):
        name = self.fn.__name__
        if name in MIRRORED and is_traced(left):
            return left.call_method(tx, f"__{name}__", [right], {})
        if name in MIRRORED and is_traced(right):
            return right.call_method(tx, f"__{MIRRORED[name]}__", [left], {})
        return compare_symbols(self, tx, left, right)

    return compare


def refusing(call_apply):
    """torch.autograd.Function.apply, but for traced values: without fullgraph=True the call then runs in eager mode, which
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
    if not hasattr(BuiltinVariable, "call_invert"):
        BuiltinVariable.call_invert = invert
    if hasattr(BuiltinVariable, "_comparison_with_symnode"):
        BuiltinVariable._comparison_with_symnode = comparing(BuiltinVariable._comparison_with_symnode)
        # Those have the old one if something was compiled before.
        getattr(getattr(BuiltinVariable, "_binop_handlers", None), "cache_clear", int)()
        getattr(BuiltinVariable, "call_function_handler_cache", {}).clear()
    if hasattr(AutogradFunctionVariable, "call_apply"):
        AutogradFunctionVariable.call_apply = refusing(AutogradFunctionVariable.call_apply)


install()
