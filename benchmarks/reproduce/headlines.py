"""What was published, by whom and on which machine, and where our figure for it is.

Published figures are quoted as their sources have them. Of pull request 304 only the description's first part can be
read in public archives; its tables of times are further down, so their rows say NOT_ARCHIVED. Ours are fields
`{suite case[key]:unit}` of results files, see report.py.
"""

from typing import NamedTuple

EHT = "github.com/achael/eht-imaging, pull request 304 (branch feature/jax-optimizers-sharding, commit 70060d4)"
ADA = "its tutorial names an NVIDIA RTX 6000 Ada"
SWEEP = (
    "github.com/DeepWave-KAUST/sweep, examples/multi-gpu/jax/fwi_marmousi_pmap.py and docs/examples/multi_gpu_jax.md"
)
DIFFOPT = "diffopt.readthedocs.io (github.com/AlanPearl/diffopt, commit fb6d5aa)"
XPCS = "github.com/imewei/homodyne, commit fed2fd5"
NOT_ARCHIVED = "in a table that archives do not have"


class Row(NamedTuple):
    """One line of a table."""

    what: str
    published: str
    here: str


class Headline(NamedTuple):
    """One published result. suites: those whose run gives our column; note: what differs from the original."""

    title: str
    suites: tuple[str, ...]
    source: str
    hardware: str
    rows: tuple[Row, ...]
    note: str


def _pair(case: str, first: str, second: str) -> str:
    return f"{{{case}[{first}]}}, {{{case}[{second}]}}"


def _seconds(case: str) -> str:
    return f"{{{case}[cpu_ours]}} CPU, {{{case}[ours]}} wall"


def _both_seconds(case: str) -> str:
    return f"{_seconds(case)}; the package here {{{case}[cpu_peer]}} CPU, {{{case}[peer]}} wall"


def _differences(case: str) -> str:
    return f"value {{{case}[value_difference]:.1e}}, gradient {{{case}[gradient_difference]:.1e}}"


def _chi2(suite: str) -> str:
    return f"{{{suite} error-0[cphase]:.2f}}, {{{suite} error-0[logcamp]:.2f}}"


def _optimizer(title: str, case: str) -> Row:
    cpu, value = f"{{vlbi optimizer-{case}[cpu_ours]}} CPU s", f"objective {{vlbi optimizer-{case}[quality_ours]:.4f}}"
    return Row(f"200 iterations, {title}", NOT_ARCHIVED, f"{cpu}, {value}")


_FIT = (
    "{xpcs 23x1000[new]} CPU s in a new process, {xpcs 23x1000[again]} warm, {xpcs 23x1000[memory]:MB} beyond the data"
)
HEADLINES = {
    "eht-optimizers": Headline(
        "eht-imaging: optimizers of the imaging objective",
        ("vlbi",),
        f"{EHT}; tutorials/ehtim_tutorial_jax.ipynb in it",
        ADA,
        (
            _optimizer("L-BFGS with a zoom search", "lbfgs"),
            _optimizer("L-BFGS with backtracking", "lbfgs-bt"),
            _optimizer("scipy L-BFGS-B", "lbfgsb"),
            Row(
                "eht-imaging 1.3.2 itself, here, scipy L-BFGS-B",
                "–",
                "{vlbi optimizer-lbfgs[cpu_peer]} CPU s, objective {vlbi optimizer-lbfgs[quality_peer]:.4f}",
            ),
            Row(
                "the branch's tutorial: 100 iterations of scipy L-BFGS-B on the JAX objective, twice",
                "3.4 s and 3.0 s wall, objective 33.04 and 29.72",
                "–",
            ),
        ),
        "Ours: 2,595 visibilities × 1,600 pixels, one thread. The tutorial is a smaller problem (32 × 32 pixels) "
        "that was not run here; its line shows what the branch itself reports.",
    ),
    "eht-sharding": Headline(
        "eht-imaging: one objective on several devices",
        ("sharding",),
        f"{EHT}; jax-finufft issue 226 by the same author names the machine",
        "four NVIDIA GPUs of one machine",
        (
            Row(
                "visibilities, exact product",
                "gradient to about 1e-16, “bit-for-bit”",
                _differences("sharding direct"),
            ),
            Row(
                "amplitudes and closures",
                "the same",
                _differences("sharding closures"),
            ),
            Row(
                "visibilities, NUFFT",
                "the same",
                _differences("sharding nufft"),
            ),
            Row(
                "eight channels with a spectral index",
                "the same",
                _differences("sharding frequency"),
            ),
            Row(
                "CPU s of an evaluation on 1, 2, 4, 8 devices",
                NOT_ARCHIVED,
                "{sharding direct[cpu-1]:.2g}, {sharding direct[cpu-2]:.2g}, {sharding direct[cpu-4]:.2g}, "
                "{sharding direct[cpu-8]:.2g}",
            ),
        ),
        "Relative differences, largest over 1, 2, 4 and 8 virtual devices of one CPU, which show that nothing changes "
        "and cannot show speed.",
    ),
    "eht-survey": Headline(
        "eht-imaging: the survey of 7,500 images of M87",
        ("m87_grid",),
        f"{EHT}; pull request 328 for memory",
        ADA,
        (
            Row("points run", "7,500", "{m87_grid grid[points]} ({m87_grid grid[share]:%})"),
            Row("points that converged", "a fixed number of iterations", "{m87_grid grid[converged]:.1%}"),
            Row(
                "lowest χ², closure phase and amplitude",
                "2.46, 0.95",
                _chi2("m87_grid"),
            ),
            Row("seconds", NOT_ARCHIVED, _seconds("m87_grid grid")),
            Row(
                "memory of the optimizer",
                "3.2 MiB for each point of the batch, 25.8 GiB for 8,192",
                "only for the points in work, 10 pairs each",
            ),
        ),
        "Day 101, low band, 0.6 Jy. Ours are points without systematic noise; with more of it χ² is lower. The memory "
        "is that of 4,096 pixels in float64 with 50 pairs of L-BFGS, the published default.",
    ),
    "eht-survey-dense": Headline(
        "eht-imaging: the survey of 49,152 images of M87",
        ("m87_dense",),
        f"{EHT}; pull request 328 for memory",
        ADA,
        (
            Row("points run", "49,152", "{m87_dense grid[points]} ({m87_dense grid[share]:%})"),
            Row("points that converged", "a fixed number of iterations", "{m87_dense grid[converged]:.1%}"),
            Row(
                "lowest χ², closure phase and amplitude",
                NOT_ARCHIVED,
                _chi2("m87_dense"),
            ),
            Row("seconds", NOT_ARCHIVED, _seconds("m87_dense grid")),
        ),
        "An interrupted run continues where it stopped; SHARDFIT_BENCH_HOURS=2 stops it after two hours.",
    ),
    "sweep-marmousi": Headline(
        "SWEEP: data-parallel inversion of Marmousi",
        ("sweep_marmousi",),
        SWEEP,
        "CUDA GPUs; 8 V100 for the scaling figures",
        (
            Row("steps", "101", "{sweep_marmousi inversion[steps]}"),
            Row(
                "rms error of the model, start and end, m/s",
                "pictures only",
                _pair("sweep_marmousi inversion", "model_error_first", "model_error_last"),
            ),
            Row(
                "loss of the shots drawn, start and end",
                "a curve only",
                _pair("sweep_marmousi inversion", "loss_first", "loss_last"),
            ),
            Row(
                "losses on several devices",
                "equal by construction",
                "apart by {sweep_marmousi devices[difference]:.1e} on 1, 2, 4 virtual devices",
            ),
            Row(
                "seconds",
                "not published for this example; 6.8 s for 30 steps of 8 shots in its first notebook (141 × 681 cells)",
                _seconds("sweep_marmousi inversion"),
            ),
            Row(
                "speed-up by sharing shots, 4 GPUs",
                "3.53 (two-layer model, notebook 12)",
                "no GPU here; the predictions of `scale` are on this page",
            ),
            Row(
                "speed-up by splitting one model, 8 GPUs",
                "5.87 (fixed problem, 256 × 256 × 1024 cells), 7.98 (fixed share), acoustic, 3-D",
                "not done",
            ),
        ),
        "Its settings on 101 × 401 cells of 30 m, the public copy of the model; the original has 25 m and 17 km. The "
        "speed-ups are from docs/examples/index.md and _dd_cuda/PERF_REPORT.md in the same place; GPUs of the first "
        "are not named.",
    ),
    "diffopt-smf": Headline(
        "DiffOpt: stellar mass function",
        ("diffopt_examples",),
        f"{DIFFOPT}, multigrad",
        "CPU of the author's laptop, model not given",
        (
            Row(
                "iterations, evaluations",
                "15, 31 (three ranks: 16, 29)",
                _pair("diffopt_examples smf", "steps_ours", "evaluations_ours"),
            ),
            Row("loss", "5.9e-12 (4.9e-12)", "{diffopt_examples smf[loss_ours]:.1e}"),
            Row(
                "the package itself, here",
                "–",
                _pair("diffopt_examples smf", "steps_peer", "evaluations_peer")
                + ", loss {diffopt_examples smf[loss_peer]:.1e}",
            ),
            Row(
                "seconds of the whole fit, warm",
                "about 0.9 (15 iterations at 16.7 per second)",
                _both_seconds("diffopt_examples smf"),
            ),
        ),
        "10,000 halos, L-BFGS-B from (-3.5, 0.2); ours in float64, the package in float32.",
    ),
    "diffopt-kdescent": Headline(
        "DiffOpt: kernel descent",
        ("diffopt_examples",),
        f"{DIFFOPT}, kdescent",
        "CPU of the author's laptop, model not given",
        (
            Row(
                "rms error of five parameters, mean of the last 20 steps",
                "pictures only",
                "{diffopt_examples kdescent[error_ours]:.2g}",
            ),
            Row("the package itself, here", "–", "{diffopt_examples kdescent[error_peer]:.2g}"),
            Row(
                "seconds of 100 steps, warm",
                "not published",
                _both_seconds("diffopt_examples kdescent"),
            ),
            Row(
                "its larger example, with multigrad: 601 steps of Adam on two MPI ranks",
                "246 s wall (2.44 steps per second)",
                "–",
            ),
        ),
        "10,000 training and 5,000 model points, 20 kernels, Adam with rate 1, 100 steps. Random draws differ.",
    ),
    "diffopt-swarm": Headline(
        "DiffOpt: a swarm on Ackley's function",
        ("diffopt_examples",),
        f"{DIFFOPT}, multiswarm",
        "CPU of the author's laptop, model not given",
        (
            Row(
                "lowest value (least possible -4.6708)",
                "-4.6278 (three ranks: -4.6523)",
                "{diffopt_examples ackley[loss_ours]:.4f}",
            ),
            Row("the package itself, here", "–", "{diffopt_examples ackley[loss_peer]:.4f}"),
            Row(
                "seconds of 100 steps, warm",
                "20 (three ranks: 8)",
                _both_seconds("diffopt_examples ackley"),
            ),
        ),
        "100 particles, 100 steps, four dimensions; each side with its own weights. One seed; swarm_quality has more.",
    ),
    "xpcs-chains": Headline(
        "homodyne: four chains on a shard of 5,000 points",
        ("xpcs_chains",),
        f"{XPCS}, docs/source/developer/adrs/adr_001_jax_cpu_only.rst",
        "machine not named; the record speaks of workstations of 32 to 128 cores",
        (
            Row(
                "parallel, one chain per virtual device",
                "4.9 s wall",
                _seconds("xpcs_chains parallel"),
            ),
            Row(
                "vectorised",
                "101 s wall",
                _seconds("xpcs_chains vectorised"),
            ),
            Row(
                "effective draws, R-hat",
                "not published",
                "{xpcs_chains vectorised[effective]:.0f}, {xpcs_chains vectorised[rhat]:.3f}",
            ),
        ),
        "Laminar flow, 23 azimuths, 4,830 points, 500 steps of warm-up and 1,500 draws in each of "
        "4 chains, compiled before; the record does not say how many draws its figure is of. Here on two busy cores.",
    ),
    "xpcs-fit": Headline(
        "homodyne: a fit of 23 million points",
        ("xpcs",),
        f"{XPCS}, docs/source/api/optimization_guide.rst and adr_006_no_consumer_gpu.rst",
        "not named; adr_006 compares with a CPU of 20 cores",
        (
            Row(
                "all points in memory",
                "10 to 15 min, over 30 GB",
                _FIT,
            ),
            Row("streaming", "15 to 30 min, about 2 GB, approximate", "not needed: the line above is exact"),
            Row(
                "one Jacobian, 7 parameters",
                "967 ms, 1.23 GB",
                "normal equations at {xpcs 23x1000[normal_rate]:.0f} million points per CPU second; the Jacobian is "
                "never stored",
            ),
        ),
        "23 angles × 1000² frames, laminar flow, contrast and offset of every angle.",
    ),
}
