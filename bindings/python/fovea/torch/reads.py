"""What a modifier's code reads from outside, told from its bytecode: globals, closure cells and bound arguments, with the
attributes and items taken of them. memory.py compares these to know that a modifier would do again what it did before.

The list is complete or there is none: code with an instruction that is not listed here (one that stores anywhere but in
local variables, makes functions, imports, catches ...) has None, and is traced at every call."""

import dis
import functools
import inspect
import types
import weakref

GLOBAL, CELL, BOUND = 0, 1, 2

# fmt: off
_LOADS = frozenset((
    "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW",
    "STORE_FAST_LOAD_FAST",
))
_STORES = frozenset(("STORE_FAST", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST"))
_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
# Those that compute from what is on the stack, and jumps: the same values in, the same values out. None of them tells
# two equal numbers apart (IS_OP would), so that numbers may be compared by value.
_PURE = frozenset((
    "BINARY_OP", "BINARY_SUBSCR", "BINARY_SLICE", "BUILD_SLICE", "BUILD_TUPLE", "CACHE", "CALL", "CALL_FUNCTION",
    "CALL_FUNCTION_KW", "CALL_KW", "CALL_METHOD", "COMPARE_OP", "COPY", "COPY_FREE_VARS", "DUP_TOP", "END_FOR",
    "EXTENDED_ARG", "FOR_ITER", "GET_ITER", "JUMP_ABSOLUTE", "JUMP_BACKWARD", "JUMP_FORWARD", "JUMP_IF_FALSE_OR_POP",
    "JUMP_IF_TRUE_OR_POP", "KW_NAMES", "LOAD_CONST", "LOAD_SMALL_INT", "NOP", "NOT_TAKEN", "POP_ITER", "POP_TOP",
    "PRECALL", "PUSH_NULL", "RESUME", "RETURN_CONST", "RETURN_VALUE", "ROT_THREE", "ROT_TWO", "SWAP", "TO_BOOL",
    "UNPACK_SEQUENCE",
))
_PURE_FAMILIES = ("POP_JUMP_", "UNARY_", "BINARY_", "INPLACE_")
# fmt: on
_OPEN_ENDED = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE


UNKNOWN = object()


class Record:
    """One live code object, by which functions of the same body know each other. Does not keep it alive."""

    __slots__ = ("code", "reads", "plain", "__weakref__")

    def __init__(self, code, forget):
        self.code = weakref.ref(code, forget)
        self.reads = {}  # (bound arguments by position, bound names) -> reads, or None
        self.plain = UNKNOWN  # those without bound arguments


RECORDS = {}


def record_of(code) -> Record:
    number = id(code)
    found = RECORDS.get(number)
    if found is None or found.code() is not code:  # an address may be used again
        found = RECORDS[number] = Record(code, lambda dead: forget(number, dead))
    return found


def forget(number, dead):
    known = RECORDS.get(number)
    if known is not None and known.code is dead:
        del RECORDS[number]


def reads_of(record, code, bound, names, methods):
    """[(kind, place, steps)] or None. A step is the name of an attribute or a tuple with the key of an item. `bound`
    arguments come first and `names` by keyword; `methods` are the attributes that what a modifier computes may be asked
    for."""
    if not bound and not names:
        if record.plain is UNKNOWN:
            record.plain = find_reads(code, 0, (), methods)
        return record.plain
    shape = (bound, names)
    if shape not in record.reads:
        record.reads[shape] = find_reads(code, bound, names, methods)
    return record.reads[shape]


def find_reads(code, bound, names, methods):
    exceptions = getattr(code, "co_exceptiontable", b"")
    if code.co_flags & _OPEN_ENDED or code.co_cellvars or exceptions:
        return None
    places = {name: i for i, name in enumerate(code.co_varnames[: min(bound, code.co_argcount)])}
    places.update((name, name) for name in names)
    found = Reads(code, places, methods)
    instructions = [x for x in dis.get_instructions(code) if x.opname not in ("CACHE", "EXTENDED_ARG")]
    behind = [*instructions[1:], None]
    for instruction, following in zip(instructions, behind):
        if not found.take(instruction, following):
            return None
    found.end_chain()
    return found.reads


class Reads:
    """Goes through instructions; a load of something from outside and the attributes right behind it are one read."""

    def __init__(self, code, places, methods):
        self.cells = {name: i for i, name in enumerate(code.co_freevars)}
        self.places, self.methods = places, methods
        self.reads, self.chain, self.key = [], None, None

    def take(self, instruction, following) -> bool:
        op, value = instruction.opname, instruction.argval
        if self.key is not None:  # the second half of an item
            self.chain[2].append(self.key)
            self.key = None
            return True
        if self.chain is not None and self.is_item(instruction, following):
            self.key = (value,)
            return True
        if op in _ATTRIBUTES:
            if self.chain is None:
                return value in self.methods
            self.chain[2].append(value)
            return not instruction.is_jump_target
        self.end_chain()
        if op == "LOAD_GLOBAL":
            self.chain = (GLOBAL, value, [])
        elif op == "LOAD_DEREF":
            if value not in self.cells:
                return False
            self.chain = (CELL, self.cells[value], [])
        elif op in _LOADS or op in _STORES:
            return self.take_local(op, value if isinstance(value, tuple) else (value,))
        else:
            return op in _PURE or op.startswith(_PURE_FAMILIES)
        return True

    @staticmethod
    def is_item(instruction, following) -> bool:
        """The constant of x["name"] or x[0], right behind x."""
        return (
            instruction.opname in ("LOAD_CONST", "LOAD_SMALL_INT")
            and type(instruction.argval) in (str, int)
            and following is not None
            and following.opname == "BINARY_SUBSCR"
            and not (instruction.is_jump_target or following.is_jump_target)
        )

    def take_local(self, op, names) -> bool:
        stored = names if op in ("STORE_FAST", "STORE_FAST_STORE_FAST") else ()
        if op == "STORE_FAST_LOAD_FAST":
            stored, names = names[:1], names[1:]
        if any(name in self.places for name in stored):  # no longer what was bound
            return False
        if not stored or op == "STORE_FAST_LOAD_FAST":
            for name in names:
                self.end_chain()
                if name in self.places:
                    self.chain = (BOUND, self.places[name], [])
        return True

    def end_chain(self):
        if self.chain is not None:
            kind, place, steps = self.chain
            read = (kind, place, tuple(steps))
            if read not in self.reads:
                self.reads.append(read)
            self.chain = None


def parts_of(function):
    """(function, arguments bound by position, those bound by name), or None where it is not made of these."""
    bound, named = (), {}
    if type(function) is not types.FunctionType:
        if type(function) is functools.partial:
            bound, named, function = function.args, function.keywords, function.func
        if type(function) is types.MethodType:
            bound, function = (function.__self__, *bound), function.__func__
        elif type(function) is not types.FunctionType:
            call = getattr(type(function), "__call__", None)  # noqa: B004  an object that is called as a function
            bound, function = (function, *bound), call
    return (function, bound, named) if type(function) is types.FunctionType else None
