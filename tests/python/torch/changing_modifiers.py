"""Modifiers that read something from outside, each with ways to change that: CHANGES have texts of their own before and
after, what STATEFUL ones do differs from run to run or reads the contents of tensors."""

import builtins
import functools
import random
import types

import torch

A, B = torch.randn(4), torch.randn(4)


class Thing:
    scale = 1.0

    def __init__(self, **values):
        vars(self).update(values)

    def mod(self, s, b, h, q, k):
        return s * self.scale + self.table[h]

    def __call__(self, s, b, h, q, k):
        return s + self.table[h] * self.inner.value


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(4))
        self.register_buffer("doc", torch.arange(8))

    def mod(self, s, b, h, q, k):
        return torch.where(self.doc[q] == self.doc[k], s + self.table[h], s)


def in_space(source, **names):
    """A function with globals of its own."""
    space = {"torch": torch, "__builtins__": builtins, **names}
    exec(source, space)
    return space["mod"], space


MOD = "def mod(s, b, h, q, k):\n    return "


def changing_closure():
    x = 0.5

    def change(value):
        nonlocal x
        x = value

    mod = lambda s, b, h, q, k: s + x * h
    return mod, [lambda v=v: change(v) for v in (0.25, 1.0, 1, True, 0.0, -0.0, 0, -1, 1e30, 0.5)] + [
        lambda v=v: change(torch.tensor(v)) for v in (0.5, 2.0, 3)
    ]


def changing_globals():
    mod, space = in_space(MOD + "s + n * f(h)", n=2, f=abs)
    changes = ({"n": 3}, {"n": 3.0}, {"f": lambda x: x + 1}, {"n": -1, "f": torch.neg})
    return mod, [lambda v=v: space.update(v) for v in changes]


def changing_helpers():
    space = {"c": 1.0}
    helper = types.FunctionType((lambda x: x * c).__code__, space)  # noqa: F821
    inner = lambda x: helper(x) + 1
    mod = lambda s, b, h, q, k: inner(s)

    def other():
        nonlocal helper
        helper = lambda x: x - 2.0

    return mod, [
        lambda: space.update(c=3.0),
        lambda: space.update(c=4),
        other,
        lambda: setattr(inner, "__code__", (lambda x: helper(x) * 7.0).__code__),
    ]


def changing_torch():
    """Even torch's own functions may be replaced in a module that looks like torch."""
    module = types.SimpleNamespace(tanh=torch.tanh)
    mod, _ = in_space(MOD + "lib.tanh(s)", lib=module)
    return mod, [lambda: setattr(module, "tanh", torch.sigmoid), lambda: setattr(module, "tanh", abs)]


def changing_attributes():
    thing = Thing(table=A, scale=0.5)

    def delete():
        del thing.scale

    return thing.mod, [
        lambda: setattr(thing, "scale", 2.0),
        lambda: setattr(thing, "table", B),
        delete,  # now it is the class's
        lambda: setattr(thing, "table", torch.arange(4)),
    ]


def changing_inner_objects():
    thing = Thing(table=A, inner=Thing(value=1.0))
    return thing, [
        lambda: setattr(thing.inner, "value", 2.0),
        lambda: setattr(thing, "inner", Thing(value=3.0)),
        lambda: setattr(thing, "table", B),
    ]


def changing_parameters():
    layer = Layer()
    return layer.mod, [
        lambda: setattr(layer, "table", torch.nn.Parameter(torch.randn(4))),
        lambda: setattr(layer, "doc", torch.zeros(8, dtype=torch.int32)),
        lambda: layer.double(),
        lambda: layer.float(),
    ]


def changing_defaults():
    def mod(s, b, h, q, k, c=2.0, *, d=1.0):
        return s * c + d

    return mod, [
        lambda: setattr(mod, "__defaults__", (3.0,)),
        lambda: setattr(mod, "__kwdefaults__", {"d": 5.0}),
        lambda: mod.__kwdefaults__.update(d=-1),
    ]


def changing_partial():
    def whole(c, s, b, h, q, k, table=A, n=1):
        return s * c + table[h] * n

    mod = functools.partial(whole, 2.0, n=3)
    return mod, [lambda: mod.keywords.update(n=4), lambda: mod.keywords.update(table=B)]


def changing_code():
    mod = lambda s, b, h, q, k: s + h
    return mod, [
        lambda: setattr(mod, "__code__", (lambda s, b, h, q, k: s - h).__code__),
        lambda: setattr(mod, "__code__", (lambda s, b, h, q, k: s * 0.5).__code__),
    ]


def changing_tensors():
    tables = Thing(one=A, two=B)
    mod, _ = in_space(MOD + "s * t.one[h] + t.two[h]", t=tables)
    return mod, [
        lambda: setattr(tables, "two", A),  # now one tensor
        lambda: setattr(tables, "one", B),
        lambda: setattr(tables, "two", torch.arange(4)),
        lambda: setattr(tables, "one", torch.randn(4, dtype=torch.bfloat16)),
        lambda: setattr(tables, "one", torch.randn(9)[::2][:4]),
    ]


def changing_items():
    numbers, nested = {"a": 1.0, "table": A}, [Thing(d={"x": (2.0, 3.0)})]
    mod = lambda s, b, h, q, k: s * numbers["a"] + numbers["table"][h] * nested[0].d["x"][1]
    return mod, [
        lambda: numbers.update(a=2.0),
        lambda: numbers.update(table=torch.arange(4)),
        lambda: nested[0].d.update(x=(2.0, 4)),
        lambda: nested.insert(0, Thing(d={"x": [0, -1.0]})),
    ]


def changing_shapes():
    tables = Thing(part=torch.randn(4, 3))
    mod, _ = in_space(MOD + "s + t.part[h].sum()", t=tables)
    return mod, [lambda: setattr(tables, "part", torch.randn(4, 2)), lambda: setattr(tables, "part", torch.randn(4, 1))]


def changing_lengths():
    tables = Thing(bias=torch.randn(4, 15))
    mod, _ = in_space(MOD + "s + t.bias[h, q - k + t.bias.shape[1] // 2] * t.bias.ndim", t=tables)
    return mod, [lambda: setattr(tables, "bias", torch.randn(4, 17))]


def changing_builtins():
    mod, space = in_space(MOD + "abs(s)")
    return mod, [lambda: space.update(abs=torch.neg), lambda: space.pop("abs")]


def changing_branches():
    flags = Thing(soft=True, cap=None)
    mod, _ = in_space(MOD + "torch.tanh(s) if f.soft else s / f.cap if f.cap else s", f=flags)
    return mod, [lambda: setattr(flags, "soft", False), lambda: setattr(flags, "cap", 3.0)]


CHANGES = [make for name, make in list(globals().items()) if name.startswith("changing_")]


def an_item():
    table = torch.rand(4)
    mod = lambda s, b, h, q, k: s + table[0].item()
    return mod, lambda: table.add_(1.0)


def a_number_of_a_tensor():
    table = torch.rand(4)
    mod = lambda s, b, h, q, k: s * float(table.max())
    return mod, lambda: table.add_(1.0)


def a_branch_on_a_tensor():
    flag = torch.tensor(1.0)
    mod = lambda s, b, h, q, k: s if flag > 0 else -s
    return mod, lambda: flag.neg_()


def a_computed_tensor():
    table = torch.rand(4)
    mod = lambda s, b, h, q, k: s + (table * 2)[h]
    return mod, lambda: None


def a_loop_over_a_list():
    numbers = [1.0, 2.0]

    def mod(s, b, h, q, k):
        for number in numbers:
            s = s * number
        return s

    return mod, lambda: numbers.append(3.0)


def an_index_into_a_list():
    numbers, i = [1.0, 2.0], 0
    mod = lambda s, b, h, q, k: s * numbers[i]
    return mod, lambda: numbers.reverse()


def a_dictionary_of_its_own():
    class Counting(dict):
        def __missing__(self, key):
            self[key] = 0.0
            return 1.0

    numbers = Counting()
    return (lambda s, b, h, q, k: s * numbers["a"]), numbers.clear


def a_random_number():
    return (lambda s, b, h, q, k: s * random.random()), lambda: random.seed(random.random())


def a_generator():
    numbers = iter(range(100))
    return (lambda s, b, h, q, k: s * next(numbers)), lambda: None


def a_property():
    class Counting:
        def __init__(self):
            self.count = 0

        @property
        def table(self):
            self.count += 1
            return torch.full((4,), float(self.count))

    counting = Counting()
    return (lambda s, b, h, q, k: s + counting.table[h]), lambda: None


def a_write():
    state = Thing(count=0)

    def mod(s, b, h, q, k):
        state.count += 1
        return s * state.count

    return mod, lambda: None


def a_global_write():
    mod, _ = in_space("n = 0\ndef mod(s, b, h, q, k):\n    global n\n    n += 1\n    return s * n")
    return mod, lambda: None


def an_attribute_of_a_tensor():
    table = torch.rand(4)
    table.offset = 1.0
    return (lambda s, b, h, q, k: s + table[h] * table.offset), lambda: setattr(table, "offset", 2.0)


def an_identity_of_numbers():
    numbers = Thing(a=1000001, b=1000001)
    mod, _ = in_space(MOD + "s if (n.a is n.b) else -s", n=numbers)
    return mod, lambda: setattr(numbers, "b", int("1000001"))


STATEFUL = [make for name, make in list(globals().items()) if name.startswith(("a_", "an_"))]
