"""The public surface is a list: a change of it is a visible change of this file."""

import importlib
import re
from pathlib import Path

import pytest

import shardfit as sf
from tests.public_surface import LISTS, SURFACE, page
from tests.public_surface import PAGE as KEYS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"

PUBLIC = {
    "__version__",
    "Above",
    "Axis",
    "BacktrackingLBFGS",
    "Below",
    "Beta",
    "CMAES",
    "Calibration",
    "Certificate",
    "CheckpointError",
    "Cluster",
    "Coefficients",
    "CurveFit",
    "Custom",
    "Evidence",
    "Exponential",
    "Finish",
    "FitSeries",
    "Fits",
    "Flat",
    "Gamma",
    "Gram",
    "HalfCauchy",
    "HalfNormal",
    "Halving",
    "HostSolver",
    "Identity",
    "Interval",
    "LBFGS",
    "LBFGSB",
    "LM",
    "LMCG",
    "Log",
    "LogNormal",
    "NonFiniteError",
    "Normal",
    "NormalEquations",
    "Objective",
    "OptaxLoop",
    "Optimistix",
    "ParityError",
    "Picture",
    "Plan",
    "Posterior",
    "Problem",
    "Profile",
    "Result",
    "RunDir",
    "RunOptions",
    "Science",
    "ShardControl",
    "ShardTable",
    "Simplex",
    "Snapshot",
    "Softplus",
    "Solver",
    "Span",
    "Status",
    "StepSolver",
    "Survey",
    "SurveyControl",
    "Swarm",
    "TanInterval",
    "Task",
    "TruncatedNormal",
    "Uniform",
    "ValueAndGrad",
    "below",
    "block_statistic",
    "calibrate",
    "coefficients",
    "compare",
    "consensus",
    "curve_fit",
    "error_bars",
    "evidence",
    "fit",
    "fit_many",
    "from_numpyro",
    "grid",
    "information_criteria",
    "join",
    "latin",
    "least_squares",
    "linear_term",
    "load_posterior",
    "load_result",
    "loo",
    "marginalised",
    "marginals",
    "mesh",
    "my_group",
    "my_rows",
    "pareto",
    "penalty",
    "plan",
    "prior",
    "profile",
    "recover",
    "reduce_sum",
    "residual_penalty",
    "residual_term",
    "robust_fit",
    "run_tasks",
    "sample",
    "sample_parts",
    "save_posterior",
    "save_result",
    "seed_axis",
    "solver_axis",
    "sobol",
    "solution",
    "start_axis",
    "statistic_term",
    "survey",
    "survey_parts",
    "total",
    "waic",
    "weight_axis",
    "within",
}

SEISMIC = {
    "Binomial",
    "Checkpointed",
    "Conditioning",
    "Correlation",
    "ElasticSimulation",
    "Envelope",
    "Frame",
    "Full",
    "Huber",
    "L1",
    "L2",
    "MisfitOptions",
    "ModelOptions",
    "NIM",
    "Native",
    "Points",
    "Recording",
    "Shots",
    "Simulation",
    "SourceOptions",
    "Stored",
    "StudentT",
    "VTISimulation",
    "ViscoacousticSimulation",
    "W2",
    "WaveOptions",
    "acquisition",
    "as_loss",
    "born",
    "check_medium",
    "check_velocity",
    "choose_engine",
    "deviation",
    "estimate_source",
    "filtered",
    "hessian_diagonal",
    "illumination",
    "inversion_problem",
    "largest_dt",
    "low_pass",
    "migration_problem",
    "model_error",
    "propagate",
    "ricker",
    "select",
    "structural_similarity",
    "tikhonov",
    "total_variation",
}


def test_names():
    assert set(sf.__all__) == PUBLIC
    for name in PUBLIC:
        assert getattr(sf, name).__doc__, f"{name} has no docstring"


def test_names_of_seismic():
    seismic = importlib.import_module("shardfit.domains.seismic")
    assert set(seismic.__all__) == SEISMIC
    for name in SEISMIC:
        assert getattr(seismic, name).__doc__, f"{name} has no docstring"


@pytest.mark.parametrize("file", SURFACE)
def test_commands_options_keys_and_names_of_domains(file):
    """`python -m tests.public_surface` writes the lists anew; what has gone belongs into the changelog."""
    assert list(SURFACE[file]()) == (LISTS / file).read_text(encoding="utf-8").splitlines()


def test_the_page_of_keys_is_the_one_that_declarations_give():
    """`python -m tests.public_surface` writes it anew."""
    assert KEYS.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("domain", ["vlbi", "xpcs"])
def test_names_of_domains_say_what_they_are(domain):
    module = importlib.import_module(f"shardfit.domains.{domain}")
    assert [
        name for name in module.__all__ if callable(getattr(module, name)) and not getattr(module, name).__doc__
    ] == []


def test_the_page_lists_every_name_once_with_a_line():
    listed = re.findall(r"^- `(\w+)`: \S.*\.$", PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(PUBLIC)


def test_the_modules_of_the_page_exist():
    for row in re.findall(r"^\| (`shardfit\..*?) \|", PAGE.read_text(), re.MULTILINE):
        first, *rest = re.findall(r"`([\w.]+)`", row)
        for name in (first, *(first.rpartition(".")[0] + other for other in rest)):
            importlib.import_module(name)


def test_every_science_has_its_own_reference():
    """A page for each, which mkdocstrings fills with all that the package exports; every name has a docstring."""
    for name in ("vlbi", "seismic", "population", "xpcs"):
        science = importlib.import_module(f"shardfit.domains.{name}")
        page = (PAGE.parent / "api" / f"{name}.md").read_text()
        assert f"::: shardfit.domains.{name}" in page and f"api/{name}.md" in PAGE.read_text()
        bare = [
            n
            for n in getattr(science, "__all__", ())
            if callable(getattr(science, n)) and not getattr(science, n).__doc__
        ]
        assert not bare, f"{name}: {bare}"
