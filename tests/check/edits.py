"""Edits of a user's code: what a function computes is another, or the same, by whatever way the code reaches it.

An edit is a script with a function `model(x)` and statements that are run in it afterwards. There is a package `lab`
beside it. The same list serves for runs that are resumed and for fits in one process.
"""

import contextlib
import sys
import textwrap
import types
from collections.abc import Iterator
from typing import NamedTuple

LAB = {
    "lab": "from lab import config, tools\nPAIR = (1.0, 2.0)",
    "lab.config": """
        SHRINK, OTHER = 0.5, 1.0
        class Settings:
            FACTOR, UNUSED = 2.0, 1.0
        """,
    "lab.tools": """
        from lab import config
        from . import config as near
        def halve(x):
            return x * 0.5
        def shrink(x):
            return x * config.SHRINK
        def shrink_near(x):
            return x * near.SHRINK
        def by_module(module, x):
            return x * module.SHRINK
        def unused(x):
            return x * 7
        """,
}
IMPORTS = """
import collections, copy, dataclasses, enum, functools, importlib, operator, sys, types
from typing import Any, NamedTuple
import jax, jax.numpy as jnp, numpy as np
import lab, lab.config
"""


class Edit(NamedTuple):
    """before: a script; edit: statements that are run in it."""

    before: str
    edit: str


@contextlib.contextmanager
def script(source: str, edit: str = "", name: str = "script", lines: int = 0) -> Iterator[types.ModuleType]:
    """Run a script beside a package `lab`, and an edit in it, and take both away again."""
    kept = {each: sys.modules.pop(each, None) for each in (*LAB, name)}
    try:
        for each, _text in LAB.items():
            module = sys.modules[each] = types.ModuleType(each)
            module.__path__, module.__package__ = [], each.rpartition(".")[0] if "." in each else each
            if "." in each:
                setattr(sys.modules["lab"], each.rpartition(".")[2], module)
        for each in reversed(LAB):
            exec(compile(textwrap.dedent(LAB[each]), f"{each}.py", "exec"), vars(sys.modules[each]))
        main = sys.modules[name] = types.ModuleType(name)
        exec(compile("\n" * lines + IMPORTS + textwrap.dedent(source), f"{name}{lines}.py", "exec"), vars(main))
        apply(main, edit)
        yield main
    finally:
        for each, module in kept.items():
            sys.modules.pop(each, None)
            if module is not None:
                sys.modules[each] = module


def apply(main: types.ModuleType, edit: str) -> None:
    """Run statements in a script."""
    exec(compile(textwrap.dedent(edit), "edit.py", "exec"), vars(main))


def _model(expression: str, before: str = "") -> str:
    return f"{textwrap.dedent(before)}\ndef model(x):\n    return {expression}\n"


SHRINK = "lab.config.SHRINK = 0.9"
WRAPPED = """
class Scaled:
    def __init__(self, fn, factor):
        functools.update_wrapper(self, fn)
        self.factor = factor
    def __call__(self, x):
        return self.factor * x
"""
KIND = """
class Kind(enum.Enum):
    A = 2.0
    B = 3.0
    def twice(self):
        return 2 * self.value
"""
OBJECT = """
class Thing:
    shared = 2.0
    def __init__(self, factor):
        self.factor = factor
    def scaled(self, x):
        return self.factor * self.shared * x
    @property
    def doubled(self):
        return 2 * self.factor
    @staticmethod
    def shift(x):
        return x + 1
    @classmethod
    def by_class(cls, x):
        return cls.shared * x
    def __mul__(self, x):
        return self.factor * x
class Derived(Thing):
    def scaled(self, x):
        return super().scaled(x) + 1
thing, derived = Thing(2.0), Derived(2.0)
"""
DATA = """
@dataclasses.dataclass
class Data:
    factor: float = 2.0
    many: list = dataclasses.field(default_factory=lambda: [2.0])
data = Data()
"""
CACHED = """
class Cached:
    def __init__(self):
        self.base = 2.0
    @functools.cached_property
    def table(self):
        return self.base * 2
cached = Cached()
"""
SLOTTED = """
class Slotted:
    __slots__ = ("__hidden", "open")
    def __init__(self, hidden):
        self.__hidden, self.open = hidden, 1.0
    def __call__(self, x):
        return self.__hidden * x
slotted = Slotted(2.0)
"""
META = """
class Meta(type):
    FACTOR = 2.0
    def scaled(cls, x):
        return cls.FACTOR * x
class Made(metaclass=Meta):
    pass
"""
PASSED = """
def called(fn, x):
    return fn(x)
"""

# another computation, by the way in which the code reaches what was changed
OTHER = {
    "global": Edit("C = 2.0\n" + _model("C * x"), "C = 3.0"),
    "global helper": Edit(_model("helper(x)", "def helper(x): return 2 * x"), "def helper(x): return 3 * x"),
    "helper's global": Edit(_model("h(x)", "C = 2.0\ndef h(x): return C * x"), "C = 3.0"),
    "sign of a zero": Edit(_model("np.copysign(1.0, C) * x", "C = 0.0"), "C = -0.0"),
    "type of a number": Edit(_model("x * (7 // C)", "C = 2"), "C = 2.5"),
    "body": Edit(_model("2 * x"), _model("3 * x")),
    "value in a submodule": Edit(_model("lab.config.SHRINK * x"), SHRINK),
    "helper behind dots": Edit(_model("lab.tools.halve(x)"), "lab.tools.halve = lambda x: x * 0.25"),
    "value behind a helper behind dots": Edit(_model("lab.tools.shrink(x)"), SHRINK),
    "relative import of a helper's module": Edit(_model("lab.tools.shrink_near(x)"), SHRINK),
    "item of a tuple in a package": Edit(_model("lab.PAIR[1] * x"), "lab.PAIR = (1.0, 3.0)"),
    "class as a namespace": Edit(_model("lab.config.Settings.FACTOR * x"), "lab.config.Settings.FACTOR = 3.0"),
    "getattr of a module": Edit(_model('getattr(lab.config, "SHRINK") * x'), SHRINK),
    "getattr of getattr": Edit(_model('getattr(getattr(lab, "config"), "SHRINK") * x'), SHRINK),
    "getattr with a default": Edit(_model('getattr(lab.config, "MORE", 1.0) * x'), "lab.config.MORE = 2.0"),
    "getattr by a variable": Edit(_model("getattr(lab.config, NAME) * x", 'NAME = "SHRINK"'), SHRINK),
    "getattr by an f-string": Edit(_model('getattr(lab.config, f"{NAME}INK") * x', 'NAME = "SHR"'), SHRINK),
    "name for getattr": Edit(_model("getattr(lab.config, NAME) * x", 'NAME = "SHRINK"'), 'NAME = "OTHER"'),
    "attrgetter": Edit(_model("get(lab.config) * x", 'get = operator.attrgetter("SHRINK")'), SHRINK),
    "vars of a module": Edit(_model('vars(lab.config)["SHRINK"] * x'), SHRINK),
    "dict of a module": Edit(_model('lab.config.__dict__["SHRINK"] * x'), SHRINK),
    "module as an argument": Edit(_model("lab.tools.by_module(lab.config, x)"), SHRINK),
    "module in a variable": Edit("def model(x):\n    c = lab.config\n    y = x * c.SHRINK\n    return y", SHRINK),
    "module in a list": Edit(_model("M[0].SHRINK * x", "M = [lab.config]"), SHRINK),
    "module in a closure": Edit(
        "def made(c):\n    def model(x):\n        return c.SHRINK * x\n    return model\nmodel = made(lab.config)",
        SHRINK,
    ),
    "import inside": Edit("def model(x):\n    import lab.config\n    return x * lab.config.SHRINK", SHRINK),
    "import inside, renamed": Edit("def model(x):\n    import lab.config as c\n    return x * c.SHRINK", SHRINK),
    "import from, inside": Edit("def model(x):\n    from lab.config import SHRINK\n    return x * SHRINK", SHRINK),
    "import of a module from, inside": Edit(
        "def model(x):\n    from lab import config as c\n    return c.SHRINK * x", SHRINK
    ),
    "import_module": Edit(_model('importlib.import_module("lab.config").SHRINK * x'), SHRINK),
    "sys.modules": Edit(_model('sys.modules["lab.config"].SHRINK * x'), SHRINK),
    "__import__": Edit(_model('__import__("lab").config.SHRINK * x'), SHRINK),
    "globals by name": Edit(_model('globals()["C"] * x', "C = 2.0"), "C = 3.0"),
    "globals by a plain f-string": Edit(_model('globals()[f"C"] * x', "C = 2.0"), "C = 3.0"),
    "globals by a made name": Edit(_model('globals()["C" + N] * x', 'C1, N = 2.0, "1"'), "C1 = 3.0"),
    "eval": Edit(_model('eval("C") * x', "C = 2.0"), "C = 3.0"),
    "eval under another name": Edit(_model('ev("C") * x', "C, ev = 2.0, eval"), "C = 3.0"),
    "exec": Edit(
        'C = 2.0\ndef model(x):\n    d = {"x": x, "C": C}\n    exec("y = C * x", d)\n    return d["y"]', "C = 3.0"
    ),
    "module with a __getattr__": Edit(
        _model("lab.config.MADE * x", "lab.config.__getattr__ = lambda name: 2.0"),
        "lab.config.__getattr__ = lambda name: 3.0",
    ),
    "another object of a library": Edit(_model("act(x)", "act = jnp.sin"), "act = jnp.cos"),
    "another library": Edit(_model("L.trunc(x)", "L = jnp"), "L = types.SimpleNamespace(trunc=lambda x: x)"),
    "patched library": Edit(_model("np.fix2(x)", "np.fix2 = lambda x: 2 * x"), "np.fix2 = lambda x: 3 * x"),
    "shadowed built-in": Edit(_model("abs(x)"), "abs = lambda x: 3 * x"),
    "missing, then there": Edit(
        "def model(x):\n    try:\n        return LATER * x\n    except NameError:\n        return x", "LATER = 2.0"
    ),
    "taken away": Edit(
        "C = 2.0\ndef model(x):\n    try:\n        return C * x\n    except NameError:\n        return x", "del C"
    ),
    "object with update_wrapper": Edit(WRAPPED + "model = Scaled(lambda x: x, 2.0)", "model.factor = 3.0"),
    "object that wraps a library's": Edit(WRAPPED + "model = Scaled(np.sin, 2.0)", "model.factor = 3.0"),
    "class of an object with update_wrapper": Edit(
        WRAPPED + "model = Scaled(np.sin, 2.0)", "Scaled.__call__ = lambda self, x: self.factor * x + 1"
    ),
    "function within a decorator": Edit(
        _model("h(x)", "def deco(f):\n    @functools.wraps(np.sin)\n    def g(x): return f(x)\n    return g\nC = 2.0")
        + "\nh = deco(lambda x: C * x)",
        "C = 3.0",
    ),
    "value of an enum's member": Edit(KIND + _model("Kind.A.value * x"), KIND.replace("2.0", "2.5")),
    "member of an enum": Edit(KIND + _model("K.value * x", "K = Kind.A"), "K = Kind.B"),
    "method of an enum": Edit(KIND + _model("Kind.A.twice() * x"), "Kind.twice = lambda self: 3 * self.value"),
    "attribute of a list": Edit(
        "class L(list): pass\nl = L([1.0]); l.scale = 2.0\n" + _model("l.scale * x"), "l.scale = 3.0"
    ),
    "attribute of a dict": Edit(
        "class L(dict): pass\nl = L(); l.scale = 2.0\n" + _model("l.scale * x"), "l.scale = 3.0"
    ),
    "attribute of a number": Edit(
        "class F(float): pass\nf = F(1.0); f.scale = 2.0\n" + _model("f.scale * f * x"), "f.scale = 3.0"
    ),
    "number of a class of its own": Edit("class F(float): pass\nf = F(1.0)\n" + _model("f * x"), "f = F(2.0)"),
    "method of a list's class": Edit(
        "class L(list):\n    def total(self): return sum(self)\nl = L([1.0])\n" + _model("l.total() * x"),
        "L.total = lambda self: 5.0",
    ),
    "attribute of an object": Edit(OBJECT + _model("thing.scaled(x)"), "thing.factor = 3.0"),
    "bound method": Edit(OBJECT + "model = thing.scaled", "thing.factor = 3.0"),
    "attribute of a class": Edit(OBJECT + _model("thing.scaled(x)"), "Thing.shared = 3.0"),
    "method of a class": Edit(OBJECT + _model("thing.scaled(x)"), "Thing.scaled = lambda self, x: 5 * x"),
    "method of a parent": Edit(OBJECT + _model("derived.scaled(x)"), "Thing.scaled = lambda self, x: 5 * x"),
    "property": Edit(OBJECT + _model("thing.doubled * x"), "Thing.doubled = property(lambda self: 7.0)"),
    "static method": Edit(OBJECT + _model("Thing.shift(x)"), "Thing.shift = staticmethod(lambda x: x + 2)"),
    "class method": Edit(OBJECT + _model("Thing.by_class(x)"), "Thing.shared = 3.0"),
    "operator of a class": Edit(OBJECT + _model("thing * x"), "Thing.__mul__ = lambda self, x: 9 * x"),
    "attribute set on a class of a global": Edit(
        OBJECT + _model("T.extra * x", "Thing.extra = 1.0; T = Thing"), "T.extra = 2.0"
    ),
    "metaclass": Edit(META + _model("Made.scaled(x)"), "Meta.FACTOR = 3.0"),
    "hidden slot": Edit(SLOTTED + "model = slotted", "slotted._Slotted__hidden = 3.0"),
    "field of a dataclass": Edit(DATA + _model("data.factor * x"), "data.factor = 3.0"),
    "default of a dataclass": Edit(DATA + _model("Data().factor * x"), DATA.replace("= 2.0", "= 3.0")),
    "factory of a dataclass": Edit(DATA + _model("Data().many[0] * x"), DATA.replace("[2.0]", "[3.0]")),
    "attribute beside the fields of a dataclass": Edit(
        DATA + _model("data.more * x", "data.more = 2.0"), "data.more = 3.0"
    ),
    "what a cached property is made of": Edit(CACHED + _model("copy.copy(cached).table * x"), "cached.base = 3.0"),
    "cached property set by hand": Edit(CACHED + _model("cached.table * x"), "cached.table = 9.0"),
    "default argument": Edit("def model(x, c=2.0): return c * x", "model.__defaults__ = (3.0,)"),
    "keyword default": Edit("def model(x, *, c=2.0): return c * x", "model.__kwdefaults__['c'] = 3.0"),
    "attribute of a function": Edit("def model(x): return model.scale * x\nmodel.scale = 2.0", "model.scale = 3.0"),
    "code of a function": Edit(_model("2 * x"), "model.__code__ = (lambda x: 3 * x).__code__"),
    "closure": Edit(
        "def made():\n    c = 2.0\n    def model(x): return c * x\n    return model\nmodel = made()",
        "model.__closure__[0].cell_contents = 3.0",
    ),
    "closure of a closure": Edit(
        "def made(c):\n    def outer():\n        def inner(x): return c[0] * x\n        return inner\n"
        "    return lambda x: outer()(x)\nC = [2.0]\nmodel = made(C)",
        "C[0] = 3.0",
    ),
    "argument of a partial": Edit(
        "def f(c, x): return c[0] * x\nC = [2.0]\nmodel = functools.partial(f, C)", "C[0] = 3.0"
    ),
    "keyword of a partial": Edit(
        "def f(x, c): return c * x\nmodel = functools.partial(f, c=2.0)", "model.keywords['c'] = 3.0"
    ),
    "function of a partial": Edit("C = 2.0\ndef f(x): return C * x\nmodel = functools.partial(f)", "C = 3.0"),
    "entry of a dispatch table": Edit(
        _model('TABLE["a"](x)', 'TABLE = {"a": lambda x: 2 * x}'), 'TABLE["a"] = lambda x: 3 * x'
    ),
    "choice from a dispatch table": Edit(
        _model("TABLE[K](x)", 'TABLE, K = {"a": lambda x: 2 * x, "b": lambda x: 3 * x}, "a"'), 'K = "b"'
    ),
    "order of a dispatch table": Edit(
        "TABLE = {'a': lambda x: 2 * x, 'b': lambda x: x + 1}\n"
        "def model(x):\n    for f in TABLE.values(): x = f(x)\n    return x",
        "TABLE['a'] = TABLE.pop('a')",
    ),
    "method of a dict, bound": Edit(_model('get("c") * x', "T = {'c': 2.0}\nget = T.get"), "T['c'] = 3.0"),
    "lru_cache": Edit(
        _model("f(2)(x)", "C = 2.0\n@functools.lru_cache\ndef f(n): return lambda x: n * C * x"), "C = 3.0"
    ),
    "singledispatch": Edit(
        _model("f(2)*x", "@functools.singledispatch\ndef f(n): return 0.0\nf.register(int, lambda n: 2.0)"),
        "f.register(int, lambda n: 3.0)",
    ),
    "list, in place": Edit(_model("L[0] * x", "L = [2.0]"), "L[0] = 3.0"),
    "list in a list": Edit(_model("L[0][1][0] * x", "L = [(1.0, [2.0])]"), "L[0][1][0] = 3.0"),
    "length of a list": Edit(_model("len(L) * x", "L = [2.0]"), "L.append(1.0)"),
    "set": Edit(_model("len(S) * x", "S = {1.0}"), "S.add(2.0)"),
    "deque": Edit(_model("D[0] * x", "D = collections.deque([2.0])"), "D[0] = 3.0"),
    "default of a defaultdict": Edit(
        _model("D.default_factory() * x", "D = collections.defaultdict(lambda: 2.0)"), "D.default_factory = lambda: 3.0"
    ),
    "namespace": Edit(_model("N.c * x", "N = types.SimpleNamespace(c=2.0)"), "N.c = 3.0"),
    "named tuple": Edit(_model("P.c * x", "class P0(NamedTuple):\n    c: Any\nP = P0(2.0)"), "P = P._replace(c=3.0)"),
    "array, in place": Edit(_model("A[1] * x", "A = np.arange(3.0)"), "A[1] = 5.0"),
    "large array, in place": Edit(_model("A[9999] * x", "A = np.ones(10_000)"), "A[9999] = 5.0"),
    "view of an array": Edit(_model("V[0] * x", "A = np.ones(4)\nV = A[2:]\nV.flags.writeable = False"), "A[2] = 5.0"),
    "array of objects": Edit(_model("A[0][0] * x", "L = [2.0]\nA = np.empty(1, object)\nA[0] = L"), "L[0] = 3.0"),
    "mask of an array": Edit(
        _model("float(A.sum()) * x", "A = np.ma.masked_array([1.0, 2.0], [False, False])"), "A.mask = [True, False]"
    ),
    "attribute of an array": Edit(
        _model("A.unit * x", "class U(np.ndarray): pass\nA = np.ones(2).view(U)\nA.unit = 2.0"), "A.unit = 3.0"
    ),
    "array in a closure": Edit(
        "def made(a):\n    return lambda x: jnp.asarray(a)[0] * x\nA = np.ones(3)\nmodel = made(A)", "A[0] = 4.0"
    ),
    "device array": Edit(_model("A[0] * x", "A = jnp.ones(2)"), "A = jnp.zeros(2)"),
    "helper wrapped in jit": Edit(_model("h(x)", "C = 2.0\n@jax.jit\ndef h(x): return C * x"), "C = 3.0"),
    "jit of a partial": Edit(
        _model("h(x)", "C = [2.0]\nh = jax.jit(functools.partial(lambda c, x: c[0] * x, C))"), "C[0] = 3.0"
    ),
    "model wrapped in jit": Edit("C = 2.0\n@jax.jit\ndef model(x): return C * x", "C = 3.0"),
    "jit within jit": Edit(
        "C = 2.0\n@jax.jit\ndef g(x): return C * x\n@jax.jit\ndef h(x): return g(x)\n" + _model("h(x)"), "C = 3.0"
    ),
    "jit of an object": Edit(OBJECT + "h = jax.jit(thing.scaled)\n" + _model("h(x)"), "thing.factor = 3.0"),
    "vmap": Edit(_model("h(x * jnp.ones(2))[0]", "C = 2.0\n@jax.vmap\ndef h(x): return C * x"), "C = 3.0"),
    "checkpoint": Edit(_model("h(x)", "C = 2.0\n@jax.checkpoint\ndef h(x): return C * x"), "C = 3.0"),
    "rule of a custom_jvp": Edit(
        "C = 2.0\n@jax.custom_jvp\ndef h(x): return 2.0 * x\n"
        "@h.defjvp\ndef rule(p, t): return h(p[0]), C * t[0]\n" + _model("jax.grad(h)(x * 1.0) * x"),
        "C = 3.0",
    ),
    "rule of a custom_vjp of a library's function": Edit(
        "C = 2.0\nh = jax.custom_vjp(jnp.sin)\nh.defvjp(lambda x: (jnp.sin(x), None), lambda r, g: (C * g,))\n"
        + _model("jax.grad(h)(x * 1.0) * x"),
        "C = 3.0",
    ),
    "body of a scan": Edit(
        "C = 2.0\ndef step(c, _): return C * c, None\n" + _model("jax.lax.scan(step, x * 1.0, None, length=2)[0]"),
        "C = 3.0",
    ),
    "body of a while": Edit(
        "C = 2.0\ndef step(c): return C * c\ndef more(c): return c < 9.0\n"
        + _model("jax.lax.while_loop(more, step, x * 1.0)"),
        "C = 5.0",
    ),
    "branch of a cond": Edit(
        "C = 2.0\ndef yes(x): return C * x\ndef no(x): return x\n" + _model("jax.lax.cond(x > 0, yes, no, x)"),
        "C = 3.0",
    ),
    "called on the host": Edit(
        "C = 2.0\ndef far(x): return C * np.asarray(x)\n"
        + _model("jax.pure_callback(far, jax.ShapeDtypeStruct((), jnp.result_type(x)), x)"),
        "C = 3.0",
    ),
    "functions that call each other": Edit(
        "C = 2.0\ndef f(x, n): return x if n == 0 else g(x, n - 1)\ndef g(x, n): return C * f(x, n)\n"
        + _model("f(x, 2)"),
        "C = 3.0",
    ),
    "classes that use each other": Edit(
        "class A:\n    def go(self, x): return B().back(x)\n    factor = 2.0\n"
        "class B:\n    def back(self, x): return A.factor * x\n    def more(self): return A()\n" + _model("A().go(x)"),
        "A.factor = 3.0",
    ),
    "object that refers to itself": Edit(
        OBJECT + _model("thing.me.factor * x", "thing.me = thing"), "thing.factor = 3.0"
    ),
    "getattr of an object": Edit(OBJECT + _model('getattr(thing, "fac" + "tor") * x'), "thing.factor = 3.0"),
    "__getattr__ of a class": Edit(
        "class G:\n    def __getattr__(self, name): return 2.0\ng = G()\n" + _model("g.anything * x"),
        "G.__getattr__ = lambda self, name: 3.0",
    ),
    "descriptor": Edit(
        "class D:\n    def __init__(self, c): self.c = c\n    def __get__(self, one, kind): return self.c\n"
        "d = D(2.0)\nclass K:\n    v = d\nk = K()\n" + _model("k.v * x"),
        "d.c = 3.0",
    ),
    "generator expression": Edit(_model("sum(C * i for i in range(3)) * x", "C = 2.0"), "C = 3.0"),
    "lambda as a default": Edit("C = 2.0\ndef model(x, f=lambda x: C * x): return f(x)", "C = 3.0"),
    "reduce": Edit(_model("functools.reduce(f, [1, 2], x)", "C = 2.0\ndef f(a, b): return C * a + b"), "C = 3.0"),
    "methodcaller": Edit(
        OBJECT + _model("call(thing)", 'call = operator.methodcaller("scaled", 2.0)') + PASSED, "thing.factor = 3.0"
    ),
    "class made by a function": Edit(
        "def made(c):\n    class M:\n        def __call__(self, x): return c[0] * x\n"
        "    return M()\n"
        "C = [2.0]\nmodel = made(C)",
        "C[0] = 3.0",
    ),
    "weak reference": Edit(
        OBJECT + "import weakref\n" + _model("W().factor * x", "W = weakref.ref(thing)"), "thing.factor = 3.0"
    ),
    "generator of numbers": Edit(
        _model("R.normal() * x", "R = np.random.default_rng(0)"), "R = np.random.default_rng(1)"
    ),
    "iterator": Edit(_model("next(copy.copy(I)) * x", "I = iter([2.0, 3.0])"), "next(I)"),
    "what a function counts and uses": Edit(
        "n = 1\ndef model(x):\n    global n\n    n += 1\n    return n * x", "n = 5"
    ),
    "comparison": Edit(_model("2 * x if x is not None and F < 2 else x", "F = 1"), "F = 3"),
    "constant in a tuple": Edit(
        "def model(x): return (1.0, (2.0, 'a'))[1][0] * x", "def model(x): return (1.0, (3.0, 'a'))[1][0] * x"
    ),
    "keyword names": Edit(
        _model("h(x, a=1.0, b=2.0)", "def h(x, a, b): return x * a - b"), _model("h(x, b=1.0, a=2.0)")
    ),
}

# the same computation
SAME = {
    "nothing": Edit(OBJECT + _model("thing.scaled(x) + lab.tools.shrink(x)"), ""),
    "comment, formatting and docstring": Edit(
        "def model(x): return 2 * x",
        '# changed\ndef model(\n    x,\n):\n    """Double."""\n    # yes\n    return (\n        2 * x\n    )',
    ),
    "name of a local variable": Edit(
        "def model(x):\n    y = 2 * x\n    return y", "def model(x):\n    z = 2 * x\n    return z"
    ),
    "name of the argument": Edit("def model(x): return 2 * x", "def model(y): return 2 * y"),
    "name of the function": Edit("def model(x): return 2 * x", "def other(x): return 2 * x\nmodel = other"),
    "name of a global": Edit(_model("C * x", "C = 2.0"), "del C\nD = 2.0\n" + _model("D * x")),
    "name of a helper": Edit(
        _model("h(x)", "def h(x): return 2 * x"), "del h\ndef double(x): return 2 * x\n" + _model("double(x)")
    ),
    "unused global": Edit(_model("2 * x", "U = 1"), "U = 2\nV = 3"),
    "global named like an attribute": Edit(OBJECT + _model("thing.factor * x", "factor = 1"), "factor = 2"),
    "global named like a local": Edit("y = 1\ndef model(x):\n    y = 2 * x\n    return y", "y = 5"),
    "global named like a keyword": Edit(
        _model("h(x, scale=2)", "scale = 1\ndef h(x, scale): return scale * x"), "scale = 5"
    ),
    "unrelated attribute of a module": Edit(_model("lab.config.SHRINK * x"), "lab.config.OTHER = 5.0"),
    "unrelated function of a module": Edit(_model("lab.tools.halve(x)"), "lab.tools.unused = None"),
    "unrelated attribute, module in a variable": Edit(
        "def model(x):\n    c = lab.config\n    return x * c.SHRINK", "lab.config.OTHER = 5.0"
    ),
    "unrelated attribute, by getattr": Edit(_model('getattr(lab.config, "SHRINK") * x'), "lab.config.OTHER = 5.0"),
    "unrelated attribute, imported inside": Edit(
        "def model(x):\n    from lab import config as c\n    return x * c.SHRINK", "lab.config.OTHER = 5.0"
    ),
    "unrelated attribute, dotted import inside": Edit(
        "def model(x):\n    import lab.config as c\n    return x * c.SHRINK", "lab.config.OTHER = 5.0"
    ),
    "unrelated attribute of a namespace": Edit(
        _model("lab.config.Settings.FACTOR * x"), "lab.config.Settings.UNUSED = 5.0"
    ),
    "unrelated attribute of an object": Edit(OBJECT + _model("thing.factor * x"), "thing.unused = 1"),
    "global that the argument hides": Edit("x = 1\ndef model(x): return 2 * x", "x = 2"),
    "order of definitions": Edit(
        "def a(x): return 2 * x\ndef b(x): return a(x)\ndef model(x): return b(x)",
        "del a, b\ndef b(x): return a(x)\ndef a(x): return 2 * x",
    ),
    "order of methods": Edit(
        "class K:\n    def a(self, x): return self.b(x)\n    def b(self, x): return 2 * x if K else K.a(x)\n"
        + _model("K().a(x)"),
        "class K:\n    def b(self, x): return 2 * x if K else K.a(x)\n    def a(self, x): return self.b(x)\n",
    ),
    "order of attributes": Edit(
        OBJECT + _model("thing.scaled(x)", "thing.a, thing.b = 1, 2"), "del thing.a, thing.b\nthing.b, thing.a = 2, 1"
    ),
    "docstring and annotations of a class": Edit(
        DATA + _model("data.factor * x"),
        "keep = data\n" + DATA.replace("class Data:", 'class Data:\n    """Doc."""').replace(": float", ": 'float'"),
    ),
    "docstring of a class inside": Edit(
        "def model(x):\n    class K:\n        c = 2.0\n    return K.c * x",
        'def model(x):\n    class K:\n        """Doc."""\n        c = 2.0\n    return K.c * x',
    ),
    "logger and lock": Edit(
        "import logging, threading\nlog, lock = logging.getLogger('a'), threading.Lock()\n"
        "def model(x):\n    with lock:\n        log.info('x')\n    return 2 * x",
        "log, lock = logging.getLogger('b'), threading.Lock()",
    ),
    "numpy scalar made anew": Edit(_model("C * x", "C = np.float64(2.0)"), "C = np.float64(4.0) / 2"),
    "equal array": Edit(_model("A[0] * x", "A = np.ones(3)"), "A = np.full(3, 1.0)"),
    "equal array of another layout": Edit(
        _model("A[0, 1] * x", "A = np.ones((3, 2))"), "A = np.asfortranarray(np.ones((3, 2)))"
    ),
    "equal list": Edit(_model("L[0] * x", "L = [2.0]"), "L = [2.0]"),
    "equal object": Edit(OBJECT + _model("thing.scaled(x)"), "thing = Thing(2.0)"),
    "equal closure": Edit("def made(c): return lambda x: c * x\nmodel = made(2.0)", "model = made(2.0)"),
    "text that is the same object or not": Edit(
        _model("len(T) * x", "T = ('ab', 'ab')"), "T = (''.join(['a', 'b']), 'ab')"
    ),
    "one list or two": Edit(_model("L[0][0] * x", "a = [2.0]\nL = [a, a]"), "L = [[2.0], [2.0]]"),
    "what a function keeps count in": Edit(
        "seen = []\ndef model(x):\n    seen.append(1)\n    return 2 * x", "seen.append(1)"
    ),
    "what a function counts": Edit("n = 0\ndef model(x):\n    global n\n    n += 1\n    return 2 * x", "n = 5"),
    "what a function counts by name": Edit(
        "n = {'a': 0}\ndef model(x):\n    n['a'] += 1\n    return 2 * x", "n['a'] = 5"
    ),
    "answer of a cached property": Edit(CACHED + _model("cached.table * x"), "cached.table"),
    "cache of a function": Edit(_model("f(2) * x", "@functools.lru_cache\ndef f(n): return 2.0 * n"), "f(2)"),
    "cache of a singledispatch": Edit(
        _model("f(2) * x", "@functools.singledispatch\ndef f(n): return 2.0 * n"), "f(2); f(2.0)"
    ),
    "program of a jit": Edit(_model("h(x)", "h = jax.jit(lambda x: 2 * x)"), "h(1.0); h(2)"),
    "set in another order": Edit(_model("len(S) * x", "S = {'a', 'b', 'c'}"), "S = {'c', 'b', 'a'}"),
    "warnings and streams": Edit(
        "import warnings\ndef model(x):\n    if x is None:\n        print('none', file=sys.stderr)\n    return 2 * x",
        "",
    ),
    "imported again": Edit(_model("lab.tools.halve(x)"), "exec('def halve(x):\\n    return x * 0.5', vars(lab.tools))"),
}
