"""Every test sees eight virtual CPU devices, compiles quickly, and shares compiled programs with its neighbours."""

import gc
import os
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cpu_seconds import CpuSeconds

HERE = Path(__file__).resolve().parent
COMPILED = HERE.parent / ".pytest_cache" / "compiled"
MOST_COMPILED = 2**30  # bytes
MOST_MAPS = 30_000
MOST_MEMORY = 1.5 * 2**30  # bytes
# tests that share nothing: workers take them one by one, first
ALONE = ("test_docs.py", "test_examples.py", "test_usual_code.py", "test_demo.py", "test_platforms.py")
# rules that a caller may have set: `SHARDFIT_TEST_RULES=dtype pytest tests/core tests/solve`
RULES = {
    "dtype": ("JAX_NUMPY_DTYPE_PROMOTION", "strict"),
    "rank": ("JAX_NUMPY_RANK_PROMOTION", "raise"),
    "transfer": ("JAX_TRANSFER_GUARD", "disallow"),
}
TEST_RULES = os.environ.get("SHARDFIT_TEST_RULES", "")
REFUSED = ("promotion", "Disallowed")  # words of JAX's refusals
FLAGS = ["--xla_force_host_platform_device_count=8"]
# most programs here run once, on a few numbers: compiling them is the whole cost
USUAL_CODE = os.environ.get("SHARDFIT_TEST_CODE") == "usual"
if not USUAL_CODE:
    FLAGS.append("--xla_backend_optimization_level=0")
    if version("jaxlib").startswith("0.10."):  # XLA ends the process at a flag it does not know, and this one may go
        FLAGS.append("--xla_cpu_use_fusion_emitters=false")


def prepare_environment() -> None:
    """Set what JAX reads when it is first imported, here and in the processes that tests start; your settings win."""
    chosen = os.environ.get("XLA_FLAGS", "")
    new = [flag for flag in FLAGS if flag.partition("=")[0] not in chosen]
    os.environ["XLA_FLAGS"] = " ".join([chosen, *new]).strip()
    if TEST_RULES:
        os.environ.update([RULES[TEST_RULES]])
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(COMPILED))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    # else every process compiles the package's source, and every worker that of all tests
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


prepare_environment()


def pytest_addoption(parser):
    parser.addoption("--cpu", type=int, metavar="N", help="show the N files and tests that took most CPU seconds")


def pytest_configure(config):
    """Throw the compiled programs away when they have become too many; JAX never does."""
    if shown := config.getoption("--cpu"):
        config.pluginmanager.register(CpuSeconds(shown))
    if hasattr(config, "workerinput") or not COMPILED.is_dir():
        return
    if sum(entry.stat().st_size for entry in os.scandir(COMPILED)) > MOST_COMPILED:
        shutil.rmtree(COMPILED)


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu"):
        import jax

        if jax.default_backend() != "gpu":
            pytest.skip("no GPU in use: set JAX_PLATFORMS=cuda (or rocm) on a machine that has one")


@pytest.fixture(autouse=True)
def precision_is_left_alone():
    """Fail for a test, or a block of a page, that leaves 64-bit numbers on: others in the process would see it."""

    def wide():
        return "jax" in sys.modules and sys.modules["jax"].config.jax_enable_x64

    before = wide()
    yield
    assert wide() == before, "this test has changed jax_enable_x64 for those that follow"


@pytest.fixture
def behind_doors():
    """For tests of what only the package itself calls, which has JAX's usual rules set before."""
    if not TEST_RULES:
        yield
        return
    from shardfit.core.rules import our_rules

    with our_rules():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Skip tests that break the rules themselves, in a session that has set some: only our own code is asked."""
    report = yield
    if TEST_RULES and report.failed and call.excinfo and _own_doing(call.excinfo):
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, f"the test itself breaks rule {TEST_RULES!r}")
    return report


def _own_doing(excinfo):
    ours, tests = str(HERE.parent / "src"), str(HERE)
    frames = [str(entry.path) for entry in excinfo.traceback]
    last = next((path for path in reversed(frames) if path.startswith((ours, tests))), tests)
    return any(word in str(excinfo.value) for word in REFUSED) and last.startswith(tests)


def pytest_runtest_teardown(item, nextitem):
    """Let go of compiled programs between files once they are many, or large.

    Each is mapped into memory in several pieces, and a process may have 65,530 of these: the next one ends it.
    """
    if nextitem is not None and file_of(item.nodeid) == file_of(nextitem.nodeid):
        return
    own = Path("/proc/self")
    if not (own / "maps").exists():
        return
    resident = int((own / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if resident > MOST_MEMORY or (own / "maps").read_bytes().count(b"\n") > MOST_MAPS:
        import jax

        from shardfit.core import loaded_programs

        jax.clear_caches()
        gc.collect()
        loaded_programs.return_memory()


def pytest_collection_modifyitems(config, items):
    """Put what takes longest first, so that no worker waits for another at the end.

    Tests of XLA's usual code are left to a session of their own, which tests/test_usual_code.py starts.
    """
    if not USUAL_CODE and (others := [item for item in items if item.get_closest_marker("usual_code")]):
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]
    items.sort(key=lambda item: group_of(item.nodeid) == file_of(item.nodeid))


def pytest_collection_finish(session):
    """Look for garbage seldom, and never among what imports hold: it is 7 % of the time otherwise."""
    if not session.config.option.collectonly:
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def group_of(nodeid: str) -> str:
    """What one worker runs: a file, for its tests share programs; a page or example; all with several processes."""
    if nodeid.startswith("tests/processes/"):
        return "processes"
    return nodeid if Path(file_of(nodeid)).name in ALONE else file_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Share tests out by our groups; marks of groups have no effect with pytest 9.2 and xdist 3.8."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid)

    return ByGroup(config, log)


@pytest.fixture(scope="session", autouse=True)
def programs_are_kept_within_a_file():
    """Tests that count compilations need it; between files see pytest_runtest_teardown."""
    from shardfit.core import loaded_programs

    loaded_programs.SHARE = 0.9


@pytest.fixture(scope="session")
def marmousi_data() -> Path:
    """Folder that holds Marmousi, whose terms of use are unclear; its tests are skipped without it."""
    folder = os.environ.get("SHARDFIT_DATA")
    if not folder or not (Path(folder) / "marmousi").is_dir():
        pytest.skip("no Marmousi: set SHARDFIT_DATA to a folder that holds marmousi/")
    return Path(folder)
