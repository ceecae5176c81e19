"""A black hole rings down before an array of detectors: two damped modes, which must name one mass and spin.

After a merger the remnant rings in modes whose frequency and decay time follow from its mass and spin alone. The
detectors and their noise are imagined. Bounds, units, derived quantities with their errors, and a report.
"""

import jax
import jax.numpy as jnp
import numpy as np

import shardfit as sf

SOLAR_MASS = 4.925490947e-6  # s, G M☉ / c³
# 2π f M and Q, each as a + b (1 - spin)^c: Berti, Cardoso & Will, Phys. Rev. D 73, 064030 (2006)
FREQUENCY = {"mode220": (1.5251, -1.1568, 0.1292), "mode330": (1.8956, -1.3043, 0.1818)}
QUALITY = {"mode220": (0.7000, 1.4187, -0.4990), "mode330": (0.9000, 2.3430, -0.4810)}
MASS, SPIN = 70.0, 0.69  # of the remnant, in solar masses, and without unit


def mode_of(name, mass, spin):
    """Frequency in Hz and decay time in ms of a mode of a black hole."""
    (a, b, c), (p, q, r) = FREQUENCY[name], QUALITY[name]
    frequency = (a + b * (1 - spin) ** c) / (2 * np.pi * mass * SOLAR_MASS)
    return {"frequency": frequency, "decay": 1e3 * (p + q * (1 - spin) ** r) / (np.pi * frequency)}


def black_hole(params):
    """Mass and spin as each mode gives them."""
    found = {}
    for name, mode in params.items():
        (a, b, c), (p, q, r) = FREQUENCY[name], QUALITY[name]
        left = ((1e-3 * jnp.pi * mode["frequency"] * mode["decay"] - p) / q) ** (1 / r)  # 1 - spin
        found[name] = {"mass": (a + b * left**c) / (2 * jnp.pi * mode["frequency"] * SOLAR_MASS), "spin": 1 - left}
    return found


def strain(params, rows):
    """Sum of both modes in units of 1e-21, as a detector with antenna patterns plus and cross sees it."""
    total = 0.0
    for mode in params.values():
        phase = 2 * jnp.pi * mode["frequency"] * rows["time"] + mode["phase"]
        envelope = mode["amplitude"] * jnp.exp(-1e3 * rows["time"] / mode["decay"])
        total += envelope * (rows["plus"] * jnp.cos(phase) + rows["cross"] * jnp.sin(phase))
    return total


def residual(params, rows):
    return (rows["strain"] - strain(params, rows)) / rows["sigma"]


rng = np.random.default_rng(0)
detectors, samples = 40, 500
plus, cross = rng.uniform(-1, 1, (2, detectors))
rows = {
    "time": np.repeat(np.linspace(0, 0.030, samples), detectors),  # s
    "plus": np.tile(plus, samples),
    "cross": np.tile(cross, samples),
    "sigma": np.tile(rng.uniform(0.08, 0.16, detectors), samples),
}
truth = {
    "mode220": {"amplitude": 1.0, "phase": 0.6, **mode_of("mode220", MASS, SPIN)},
    "mode330": {"amplitude": 0.4, "phase": -0.9, **mode_of("mode330", MASS, SPIN)},
}
rows["strain"] = np.asarray(strain(truth, rows)) + rows["sigma"] * rng.standard_normal(detectors * samples)

start = {"mode220": {"frequency": 230.0}, "mode330": {"frequency": 410.0}}
scales = {"amplitude": "log", "decay": "log", "frequency": sf.Interval(100.0, 700.0)}
units = {"amplitude": "1e-21", "decay": "ms", "frequency": "Hz", "phase": "rad"}
problem = sf.Problem(
    sf.Objective({"strain": sf.residual_term(residual, rows)}),
    {name: {"amplitude": 0.5, "decay": 3.0, "phase": 0.0} | start[name] for name in truth},
    transforms=dict.fromkeys(truth, scales),
    units=dict.fromkeys(truth, units),
    name="black-hole ringdown",
)
result = sf.least_squares(problem, run_dir="ringdown")
print(result)
print("write its page with: shardfit report ringdown")

# errors of mass and spin, to first order
value, slopes = black_hole(result.params), jax.jacfwd(black_hole)(result.params)
found = {}
for name in truth:
    for quantity, known in (("mass", MASS), ("spin", SPIN)):
        slope = np.array([float(leaf) for leaf in jax.tree.leaves(slopes[name][quantity])])
        error = float(np.sqrt(slope @ result.covariance @ slope))
        found[name, quantity] = float(value[name][quantity]), error
        print(f"{quantity} from {name}: {found[name, quantity][0]:.3f} ± {error:.3f} (true {known})")
        assert abs(found[name, quantity][0] - known) < 5 * error
for quantity in ("mass", "spin"):
    (one, e1), (two, e2) = (found[name, quantity] for name in truth)
    assert abs(one - two) < 5 * np.hypot(e1, e2), "the modes name different black holes"
