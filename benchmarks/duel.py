"""Two programs timed in turn: each waits while the other works, so that a busy machine hurts both alike.

A side is a module that ends with `serve(prepare)`, where prepare(arguments) returns (call, describe): `call()` is what
is timed, `describe()` returns figures that are not times (values reached, sizes).
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers import ROOT, THREADS, peer_python


def duel(peer: str, modules: tuple[str, str], arguments: Any, rounds: int) -> dict:
    """Time our module against a peer's and return the best round of each, wall and CPU seconds, and what they say."""
    interpreters = Path(sys.executable), peer_python(peer)
    return compared(
        [Side(python, module, arguments) for python, module in zip(interpreters, modules, strict=True)], rounds
    )


def compared(sides: "list[Side]", rounds: int) -> dict:
    """Time two sides, ours first, and return the best round of each, wall and CPU seconds, and what they say."""
    try:
        times = [[side.ask("go") for side in sides] for _ in range(rounds)]
        said = [side.ask("describe") for side in sides]
    finally:
        for side in sides:
            side.end()
    best = [{k: min(t[i][k] for t in times) for k in ("wall", "cpu")} for i in (0, 1)]
    return {
        "ours": best[0]["wall"],
        "peer": best[1]["wall"],
        "ratio": best[1]["wall"] / best[0]["wall"],
        "cpu_ours": best[0]["cpu"],
        "cpu_peer": best[1]["cpu"],
        "cpu_ratio": best[1]["cpu"] / best[0]["cpu"],
        "said_ours": said[0],
        "said_peer": said[1],
    }


def alone(module: str, arguments: Any, rounds: int) -> tuple[dict, dict]:
    """Time one of our modules and return its best round, wall and CPU seconds, and what it says."""
    side = Side(Path(sys.executable), module, arguments)
    try:
        times = [side.ask("go") for _ in range(rounds)]
        said = side.ask("describe")
    finally:
        side.end()
    return {k: min(t[k] for t in times) for k in ("wall", "cpu")}, said


class Side:
    """A program that waits for questions. root: the tree whose sources it runs."""

    def __init__(self, python: Path, module: str, arguments: Any, root: Path = ROOT):
        self.name = f"{module} in {python}"
        own = {} if root == ROOT else {"PYTHONPATH": os.pathsep.join((str(root / "src"), str(root)))}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([python, "-m", module], cwd=root, env={**os.environ, **THREADS, **own}, **pipes)
        self.ask(arguments)

    def ask(self, question: Any) -> Any:
        """Return the answer, read as JSON."""
        assert self.process.stdin and self.process.stdout and self.process.stderr
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"{self.name} failed:\n{self.process.stderr.read()[-2000:]}")
        return json.loads(answer)

    def end(self) -> None:
        """Stop it."""
        self.process.kill()
        self.process.communicate()


def keeping_value(call: Callable[[], Any]) -> tuple[Callable, Callable]:
    """Return the pair `serve` needs for a call that returns a loss: it, compiled, and its last loss and peak memory."""
    last = {"loss": call()}

    def timed():
        last["loss"] = call()

    return timed, lambda: {"loss": float(last["loss"]), "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def first_timed(call: Callable[[], Any], began: tuple[float, float], describe: Callable[[], dict]) -> tuple:
    """Make the first call, and return what `serve` needs: imports, reading, compiling and this call are told as cold.

    began: wall and CPU clock before anything was imported.
    """
    call()
    cold = {"cold": time.perf_counter() - began[0], "cold_cpu": time.process_time() - began[1]}
    return call, lambda: cold | describe()


def serve(prepare: Callable[[Any], tuple[Callable, Callable]]) -> None:
    """Answer the questions of `duel`; what libraries print goes to standard error."""
    answers, sys.stdout = sys.stdout, sys.stderr
    call, describe = prepare(json.loads(sys.stdin.readline()))
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        if json.loads(line) == "describe":
            found = describe()
        else:
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            found = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        print(json.dumps(found), file=answers, flush=True)
