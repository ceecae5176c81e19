"""`shardfit xpcs`: commands end to end, and configurations in TOML and YAML."""

import json
import random
import re
import warnings

import numpy as np
import pytest

from benchmarks.reliability.mutation import mutated
from shardfit.cli import main
from shardfit.cli.xpcs.config import Config, read_config
from shardfit.cli.xpcs.homodyne_yaml import translated
from shardfit.cli.xpcs.init import text
from shardfit.domains.xpcs.options import LOSSES
from shardfit.options.rules import Place

HOMODYNE = """
metadata: {config_version: "2.5"}
analysis_mode: static_isotropic
analyzer_parameters:
  dt: 0.1
  start_frame: 2
  end_frame: 21
  scattering: {wavevector_q: 0.0054}
  geometry: {stator_rotor_gap: 2000000}
experimental_data: {data_folder_path: "./", data_file_name: s.npz, cache_compression: true}
phi_filtering: {enabled: true, target_ranges: [{min_angle: -40, max_angle: 10}], fallback_to_all_angles: true}
initial_parameters:
  parameter_names: [D0, alpha, D_offset]
  values: [12000.0, -0.3, 500.0]
  fixed_parameters: {D_offset: 800.0}
parameter_space:
  bounds:
    - {name: D0, min: 100.0, max: 100000.0, type: TruncatedNormal, prior_mu: 1000.0, prior_sigma: 1000.0}
    - {name: gamma_dot_0, min: 1.0e-6, max: 0.5}
optimization:
  method: nlsq
  nlsq:
    loss: linear
    max_iterations: 50
    tolerance: 1.0e-8
    anti_degeneracy: {per_angle_mode: individual, fourier_order: 2, constant_scaling_threshold: 3}
  cmc: {enable: auto, sharding: {strategy: angle_balanced}}
logging: {level: INFO}
"""


def test_simulate_fit_report_plot(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["xpcs", "simulate", "s.npz", "--frames", "1:24", "--seed", "3"]) == 0
    assert main(["xpcs", "init", "a.toml"]) == 0
    options = ["--config", "a.toml", "--hold", "D_offset=800", "--start", "D0=12000", "--start", "alpha=-0.2"]
    assert main(["xpcs", "fit", "s.npz", *options, "--out", "out"]) == 0
    said = capsys.readouterr().out
    assert "D_offset = 800 ± held" in said and "report.html" in said
    answer = json.loads((tmp_path / "out/nlsq/parameters.json").read_text())
    assert answer["convergence_status"].startswith("converged")
    d0 = answer["parameters"]["D0"]
    assert abs(d0["value"] - 15000) < 5 * d0["uncertainty"]
    with np.load(tmp_path / "out/nlsq/fitted_data.npz") as kept:
        names = {
            "phi_angles",
            "c2_exp",
            "c2_theoretical_raw",
            "c2_theoretical_scaled",
            "per_angle_scaling",
            "residuals",
        }
        assert names | {"per_angle_scaling_solver", "residuals_normalized", "t1", "t2", "q"} <= set(kept)
        assert kept["per_angle_scaling"].shape == (3, 2)
    assert (tmp_path / "out/figures/rates.png").is_file()
    assert "Figures of the answer" in (tmp_path / "out/report.html").read_text()
    assert main(["xpcs", "plot", "s.npz", "--out", "pictures"]) == 0
    assert len(list((tmp_path / "pictures").glob("*.png"))) == 3


def test_a_posterior_takes_the_file_of_the_configuration(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text('mode = "static"\n[data]\nfile = "s.npz"\n')
    assert main(["xpcs", "sample", "--config", "a.toml"]) == 2
    assert "s.npz: no such file" in capsys.readouterr().err
    assert main(["xpcs", "sample"]) == 2
    assert "no file: name one" in capsys.readouterr().err


@pytest.mark.slow
def test_delays_and_ages_are_fitted_and_drawn(tmp_path):
    from tests.domains.xpcs.cases import small
    from tests.domains.xpcs.test_files import esrf

    data, step = small(n_frames=61, phi=(0.0,), dt=0.1), 2
    lag, age = 0.1 * step * np.arange(1, 12), 0.1 * np.arange(12, 48, 4)
    i, j = ((age[:, None] + side * lag) / 0.1 for side in (-0.5, 0.5))
    ttcf = data.c2[:, i.round().astype(int), j.round().astype(int)]
    content = {"twotime/lag": lag, "twotime/age": age, "twotime/ttcf": ttcf, "parameters/q": [0.054]}
    options = ["--dt", "0.1", "--hold", "D_offset=800", "--out", str(tmp_path / "out")]
    assert main(["xpcs", "fit", str(esrf(tmp_path / "a.h5", **content)), *options]) == 0
    answer = json.loads((tmp_path / "out/nlsq/analysis_results_nlsq.json").read_text())
    assert answer["errors"] == "points" and answer["n_points"] == 99 and answer["sigma_is_default"]
    d0 = answer["parameters"]["D0"]
    assert abs(d0["value"] - 15000) < 5 * d0["uncertainty"]
    assert (tmp_path / "out/figures/c2_heatmaps_phi_0_0.png").is_file()


@pytest.mark.filterwarnings("ignore:.*settings of homodyne that are not used here")
def test_homodyne_yaml_is_understood(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["xpcs", "simulate", "s.npz", "--frames", "1:24"]) == 0
    (tmp_path / "a.yaml").write_text(HOMODYNE.replace("    - {name: gamma_dot_0, min: 1.0e-6, max: 0.5}\n", ""))
    config = read_config("a.yaml")
    assert (config.mode, config.data.frames, config.data.file) == ("static", (2, 21), "./s.npz")
    assert config.fit.scaling == "individual" and config.fit.maxiter == 50 and config.data.angles == ((-40.0, 10.0),)
    assert config.start == {"D0": 12000.0, "alpha": -0.3} and config.fixed == {"D_offset": 800.0}
    assert main(["xpcs", "validate", "a.yaml"]) == 0
    assert "2 angles, 20 frames, 380 points" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:.*settings of homodyne that are not used here")
def test_yaml_keys_that_are_not_used_are_named(tmp_path):
    (tmp_path / "a.yaml").write_text("analysis_mode: laminar_flow\nanalyzer_parameters: {dtt: 0.1}\n")
    with pytest.warns(UserWarning, match=r"analyzer_parameters.dtt.*analyzer_parameters.dt"):
        assert read_config(tmp_path / "a.yaml").mode == "laminar_flow"
    (tmp_path / "c.yaml").write_text(
        "analysis_mode: static\noptimization: {nlsq: {ftol: 1.0e-9}, cmc: {enable: true}}\n"
    )
    with pytest.warns(UserWarning, match=r"nlsq.ftol, optimization.cmc: settings of homodyne that are not used here"):
        read_config(tmp_path / "c.yaml")
    (tmp_path / "b.yaml").write_text(HOMODYNE)
    config = read_config(tmp_path / "b.yaml")
    with pytest.raises(ValueError, match="no parameter 'gamma_dot_t0'"):
        from shardfit.domains.xpcs.problem import parameter_table

        parameter_table(config.model(), config.options())


# sections that `homodyne-config` 2.23.2 writes, each with one of its keys
WRITTEN = {
    "metadata": {"config_version": "2.23.2"},
    "analysis_mode": "laminar_flow",
    "analyzer_parameters": {"dt": 0.001, "start_frame": 1, "end_frame": 2000},
    "analysis_settings": {"model_description": {"type": "nonequilibrium_laminar_flow"}},
    "experimental_data": {
        "file_path": "./data/sample/experiment.hdf",
        "phi_angles_path": "./data/sample/",
        "phi_angles_file": "phi_angles_list.txt",
        "data_type": "float64",
        "file_format": "HDF5",
        "exchange_key": "exchange",
    },
    "phi_filtering": {"algorithm": "range_based", "tolerance": 3.0, "quality_control": {"min_angles_required": 1}},
    "initial_parameters": {"values": None, "units": ["dimensionless"], "active_parameters": None},
    "optimization": {
        "nlsq": {
            **{"workflow": "auto", "goal": "quality", "trust_region_scale": 1.0, "verbose": False, "x_scale_map": None},
            "progress": {"enable": True},
            "diagnostics": {"enabled": False},
            "hybrid_streaming": {"enable": True},
            "anti_degeneracy": {"enable": True, "hierarchical": {"enable": True}},
            "quality_validation": {"enable": True},
        },
        "streaming": {"batch_size": None},
        "stratification": {"enabled": "auto"},
        "sequential": {"weighting": "inverse_variance"},
        "recovery": {"enable": True},
        "mcmc": {"initial_values": {"percentile_fallback": {"offset_pct": 50}}},
    },
    "noise_estimation": {"enabled": False, "adam_config": {"max_epochs": 500}},
}


def test_nothing_is_said_of_keys_that_homodyne_writes_itself():
    settings, notes = translated(WRITTEN)
    assert notes == [] and settings["mode"] == "laminar_flow" and settings["start"] == {}


def test_a_robust_loss_of_homodyne_is_said_to_be_another():
    _, (note,) = translated({**WRITTEN, "optimization": {"nlsq": {"loss": "soft_l1"}}})
    assert "'soft_l1'" in note and "'linear'" in note


@pytest.mark.parametrize("mode", ["static", "static_isotropic", "static_anisotropic", "laminar_flow", "heterodyne"])
def test_all_modes_are_accepted(mode):
    config = Config.filled({"mode": mode}, Place("test"))
    assert len(config.model().names) in (3, 7, 14)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"mdoe": "static"}, "test has no key 'mdoe'.*mode"),
        ({"mode": "statics"}, "one of static, .* Did you mean 'static'"),
        ({"data": {"qq": 1.0}}, "no key 'qq'"),
        ({"data": {"q": "x"}}, "q = 'x' must be a positive number in 1/Å"),
        ({"data": {"frames": [1]}}, "a pair of whole numbers"),
        ({"data": {"angles": [1, 2]}}, "a list of pairs"),
        ({"data": {"sigma": "guess"}}, "a positive number or 'estimate'"),
        ({"fit": {"starts": 1.5}}, "a whole number"),
        ({"fit": {"shear_weighted": 1}}, "true or false"),
        ({"start": {"D0": "x"}}, "must be a number"),
        ({"bounds": {"D0": 3}}, r"\[bounds\] D0 = 3 must be a pair of numbers"),
        ({"seed": True}, "seed = True must be a whole number"),
        ({"data": 3}, r"data = 3 must be a section, \[data\]"),
        ({"fit": {"compat": "grid", "loss": "huber"}}, r"test: \[fit\]: compat 'grid'"),
    ],
)
def test_wrong_configurations_are_named(content, message):
    with pytest.raises(ValueError, match=message):
        Config.filled(content, Place("test"))


def test_few_keys():
    """So few that all are known."""
    config = Config()
    assert len([*vars(config), *vars(config.data), *vars(config.fit)]) <= 60


def test_losses_are_those_that_can_be_computed():
    from shardfit.domains.xpcs import losses

    assert tuple(losses.LOSSES) == LOSSES


def fuzz(tmp_path, count, seed):
    rng = random.Random(seed)
    texts = {
        "a.yaml": HOMODYNE.encode(),
        "a.toml": re.sub(r"^# (?=\w+ = )", "", text("laminar_flow"), flags=re.MULTILINE).encode(),
    }
    refused = 0
    for k in range(count):
        name = ("a.yaml", "a.toml")[k % 2]
        content = texts[name]
        for _ in range(rng.randint(1, 6)):
            content = mutated(content, rng)
        (tmp_path / name).write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                config = read_config(tmp_path / name)
                config.options()
                config.model()
            except ValueError as error:
                refused += 1
                assert len(str(error)) > 10
    assert refused > 0.1 * count


def test_damaged_configurations_give_clear_errors(tmp_path):
    fuzz(tmp_path, 60, seed=0)


@pytest.mark.slow
def test_many_damaged_configurations_give_clear_errors(tmp_path):
    fuzz(tmp_path, 5000, seed=1)
