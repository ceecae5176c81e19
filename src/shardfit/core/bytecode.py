"""What a function's code looks up while it runs, and everything else that tells it from other code.

Read from the instructions: sources are not always at hand, and hold names, comments and formatting, which compute
nothing. A chain of attributes is kept whole (`lab.config.SHRINK`), so that of a module only what is used counts.
"""

import dis
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

GLOBAL_OPS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
FREE_OPS = {"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
ATTRIBUTE_OPS = {"LOAD_ATTR", "LOAD_METHOD"}
SUBSCRIPT_OPS = {"BINARY_SUBSCR", "BINARY_OP"}
IDLE = {"CACHE", "EXTENDED_ARG", "NOP", "PUSH_NULL", "PRECALL", "RESUME", "NOT_TAKEN"}
CALL_FLAGS = 0x2EC  # varargs, keywords, generator, coroutine
# of a class body, what only says where and how it was written
WRITTEN = {"__doc__", "__module__", "__qualname__", "__firstlineno__", "__static_attributes__"}
# methods of built-in containers that only put something in: a function that keeps count does not depend on the count
FILLING = {"append", "extend", "insert", "add", "update", "appendleft"}
COUNTING = ["LOAD_CONST", "COPY", "COPY", "BINARY_OP", "LOAD_CONST", "BINARY_OP", "SWAP", "SWAP", "STORE_SUBSCR"]


class Use(NamedTuple):
    """Something that code looks up: a global, a variable it is closed over, or a module that it imports.

    attributes: asked of it one after the other, by a dot or by `getattr(x, "name")`.
    """

    kind: str
    name: str
    attributes: tuple[str, ...] = ()
    filled: bool = False  # only to put something into it
    kept: bool = False  # in a variable whose own uses are listed
    then: Any = None  # what is used if this looks something up by a text, such as globals()["x"], and the text is known


class Constant(NamedTuple):
    """A constant of the code, which may be other code."""

    value: Any


@lru_cache(maxsize=4096)
def listing(code: types.CodeType) -> tuple[bytes | Use | Constant, ...]:
    """Return the instructions of code as what tells them apart, in order; variables count by their places."""
    return tuple(_Listing(code).parts())


class _Step(NamedTuple):
    name: str
    arg: Any
    value: Any
    opcode: int


class _Listing:
    def __init__(self, code: types.CodeType):
        self.code, self.steps = code, _without_origin([*_steps(code)])
        stored = [step.value for step in self.steps if step.name in ("STORE_FAST", "DELETE_FAST")]
        self.once = {name for name in stored if stored.count(name) == 1} - set(code.co_varnames[: _arguments(code)])
        self.aliases: dict[str, Use] = {}  # local variables that are a module, as far as it can be told
        self.asked = 0  # calls of getattr that wait for their name

    def parts(self) -> Iterator[bytes | Use | Constant]:
        code = self.code
        signature = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & CALL_FLAGS
        yield repr((signature, code.co_varnames[code.co_argcount : _arguments(code)])).encode()
        yield code.co_exceptiontable
        for i, step in enumerate(self.steps):
            if step.name not in GLOBAL_OPS | FREE_OPS | {"LOAD_FAST"}:
                self.asked = 0
            yield step.name.encode()
            yield from self._operand(i, step)

    def _operand(self, i: int, step: _Step) -> Iterator[bytes | Use | Constant]:
        if step.name in GLOBAL_OPS:
            yield self._global(i, step.value)
        elif step.name in FREE_OPS and step.value in self.code.co_freevars:
            yield self._chained(i + 1, Use("free", step.value))
        elif step.name == "LOAD_FAST" and step.value in self.aliases:
            yield str(step.arg).encode()
            yield self._chained(i + 1, self.aliases[step.value])
        elif step.name == "IMPORT_NAME":
            yield from self._import(i, step.value)
        elif step.opcode in dis.hasconst:
            yield Constant(self.code.co_consts[step.arg] if step.name == "KW_NAMES" else step.value)
        elif step.opcode in dis.hasname or step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            yield str(step.value).encode()
        else:  # a variable by its place: its name does not matter
            yield str(step.arg).encode()

    def _global(self, i: int, name: str) -> Use:
        use = self._chained(i + 1, Use("global", name))
        found = None if use.kept else self._text_after(i + 1 + len(use.attributes))
        self.asked = self.asked + 1 if name == "getattr" else 0
        if found is None:
            return use
        end, kind, text = found
        return use._replace(then=self._chained(end, Use(kind, text)))

    def _text_after(self, i: int) -> tuple[int, str, str] | None:
        """Return where it ends, what is looked up and by which text, if steps from i on look something up by a text."""
        steps = self.steps[i : i + 3]
        names, values = [step.name for step in steps], [step.value for step in steps]
        if names[:1] == ["LOAD_CONST"] and isinstance(values[0], str):
            if names[1:2] == ["CALL"] and steps[1].arg == 1:  # import_module("x")
                return i + 2, "import", values[0]
            if names[1:2] and names[1] in SUBSCRIPT_OPS:  # sys.modules["x"]
                return i + 2, "import", values[0]
        called = names[:2] == ["CALL", "LOAD_CONST"] and steps[0].arg == 0 and isinstance(values[1], str)
        if called and names[2:] and names[2] in SUBSCRIPT_OPS:  # globals()["x"]
            return i + 3, "global", values[1]
        return None

    def _import(self, i: int, name: str) -> Iterator[Use]:
        listed, level = self.steps[i - 1].value, self.steps[i - 2].value if i > 1 else 0
        if isinstance(self.steps[i - 2].arg, int) and self.steps[i - 2].name == "LOAD_SMALL_INT":
            level = self.steps[i - 2].arg
        module = "." * (level if isinstance(level, int) else 0) + name
        i += 1
        if listed:
            while i < len(self.steps) and self.steps[i].name == "IMPORT_FROM":
                yield self._chained(i + 1, Use("import", module, (self.steps[i].value,)))
                i += 2
            return
        top, *inner = module.split(".") if not module.startswith(".") else (module,)
        taken: tuple[str, ...] = ()
        while self.steps[i].name in ("IMPORT_FROM", "SWAP", "POP_TOP", "ROT_TWO"):
            taken += (self.steps[i].value,) if self.steps[i].name == "IMPORT_FROM" else ()
            i += 1
        yield Use("import", module, ("",), kept=True)  # it must be there, and is not used as yet
        yield self._chained(i, Use("import", top, taken))

    def _chained(self, i: int, use: Use) -> Use:
        """Return a use with the attributes that the steps from i on ask of it, and keep it if it is put away."""
        use = use._replace(kept=False)
        if self._counts(i, use.name):
            return use._replace(filled=True)
        while i < len(self.steps) and self.steps[i].name in ATTRIBUTE_OPS:
            attribute = self.steps[i].value
            if attribute in FILLING and self._dropped(i):
                return use._replace(filled=True)
            use, i = use._replace(attributes=(*use.attributes, attribute)), i + 1
        while self.asked and i + 1 < len(self.steps) and self.steps[i].name == "LOAD_CONST":
            if not isinstance(self.steps[i].value, str):
                break
            self.asked -= 1
            use, i = use._replace(attributes=(*use.attributes, self.steps[i].value)), i + 1
            if self.steps[i].name != "CALL" or self.steps[i].arg != 2:
                break  # a default comes with it
            i += 1
            while i < len(self.steps) and self.steps[i].name in ATTRIBUTE_OPS:
                use, i = use._replace(attributes=(*use.attributes, self.steps[i].value)), i + 1
        if i < len(self.steps) and self.steps[i].name == "STORE_FAST" and self.steps[i].value in self.once:
            self.aliases[self.steps[i].value] = use
            return use._replace(kept=True)
        return use

    def _counts(self, i: int, name: str) -> bool:
        """Return whether the steps from i on only count: `n += 1` or `n["calls"] += 1`."""
        names = ["LOAD_CONST" if s.name == "LOAD_SMALL_INT" else s.name for s in self.steps[i : i + 9]]
        names = ["BINARY_OP" if name == "BINARY_SUBSCR" else name for name in names]
        if names[:2] == ["LOAD_CONST", "BINARY_OP"] and names[2:3] and names[2] in ("STORE_DEREF", "STORE_GLOBAL"):
            return self.steps[i + 2].value == name
        return names == COUNTING

    def _dropped(self, i: int) -> bool:
        """Return whether what the method called at step i returns is not used."""
        for step, following in zip(self.steps[i:], self.steps[i + 1 :], strict=False):
            if step.name == "CALL":
                return following.name == "POP_TOP"
            if step.name in ("RETURN_VALUE", "STORE_FAST") or step.opcode in dis.hasjrel:
                return False
        return False


def _without_origin(steps: list[_Step]) -> list[_Step]:
    """Leave out what the body of a class says of where and how it was written."""
    said = [i for i, step in enumerate(steps) if step.name == "STORE_NAME" and step.value in WRITTEN]
    return [step for i, step in enumerate(steps) if i not in said and i + 1 not in said]


def _arguments(code: types.CodeType) -> int:
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)


def _steps(code: types.CodeType) -> Iterator[_Step]:
    for i in dis.get_instructions(code):
        if i.opname in IDLE:
            continue
        if isinstance(i.argval, tuple) and i.opname.count("_FAST") > 1 and len(i.argval) == 2:
            first, second = ("STORE_FAST" if "STORE_FAST_STORE" in i.opname else n for n in ("LOAD_FAST", "LOAD_FAST"))
            if i.opname == "STORE_FAST_LOAD_FAST":
                first = "STORE_FAST"
            assert i.arg is not None
            yield _Step(first, i.arg >> 4, i.argval[0], i.opcode)
            yield _Step(second, i.arg & 15, i.argval[1], i.opcode)
            continue
        name = i.opname
        if name.startswith("LOAD_FAST") and name != "LOAD_FAST_AND_CLEAR":
            name = "LOAD_FAST"
        yield _Step(name, i.arg, i.argval, i.opcode)
