"""From what a solver moves to maps on the sky.

Physical maps, each (n,) over the pixels of the mask: I (Jy per pixel), m and v (linear and circular fraction), phi
(twice the polarisation angle), and spectral maps. `P = I m exp(i phi)`, `V = I v`; the total fraction rho and the angle
psi of the papers are m = rho cos psi, v = rho sin psi.

| mode | solved | transform | kept |
| I | I | power, log or identity | |
| P, IP (QU, IQU) | (I), m_share, phi | mcv: m = (1 - |v|) m_share, m_share in (0, 1) | v |
| V, IV | (I), v_share | vcv: v = (1 - |m|) v_share, v_share in (-1, 1) | m, phi |
| IPV (IQUV) | I, rho, phi, psi | polcv: rho in (0, 1), psi in (-π/2, π/2) | |

`power` is I = s |x|^1.5, with s the mean brightness: images converge in it. In the logarithm a pixel moves in
proportion to its brightness, so that faint ones freeze.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from shardfit.core.errors import suggestion
from shardfit.core.transforms import Identity, Log
from shardfit.domains.vlbi.grid import Grid

Pixels = Float[Array | np.ndarray, " n"]  # over the mask
Maps = Mapping[str, Pixels]
Stack = Float[Array | np.ndarray, "... n"]  # of the frames of a movie

SOLVED = {
    "I": ("I",),
    "P": ("m_share", "phi"),
    "IP": ("I", "m_share", "phi"),
    "V": ("v_share",),
    "IV": ("I", "v_share"),
    "IPV": ("I", "rho", "phi", "psi"),
}
ALIASES = {"QU": "P", "IQU": "IP", "IQUV": "IPV"}
REQUIRED = {"P": "mcv", "IP": "mcv", "V": "vcv", "IV": "vcv", "IPV": "polcv"}
SPECTRAL = ("alpha", "beta", "alphap", "betap", "rm", "cm")
FRACTIONS = ("odds", "reference")
INTENSITY = ("power", "log", "identity")  # transforms of I where it is solved alone
FLOOR = 1e-3  # of the mean brightness: darker pixels of a start would hardly move, for at x = 0 the slope is zero


@dataclass(frozen=True)
class Power:
    """Brightness I = scale |x|^1.5. scale: Jy per pixel, the mean brightness, so that x is about 1."""

    scale: float

    def forward(self, z):
        """Return the brightness."""
        return self.scale * _three_halves(z)

    def inverse(self, x):
        """Return the positive one of the two x; NaN for a negative brightness."""
        root = jnp.cbrt(x / self.scale)
        return jnp.where(x >= 0, root * root, jnp.nan)

    def log_det(self, z):
        """Return ln(1.5 scale) + ln|x| / 2. Either sign of x gives each brightness: both halves have the same law."""
        return jnp.log(1.5 * self.scale) + 0.5 * jnp.log(jnp.abs(z))

    def lifted(self, x):
        """Return brightness that moves."""
        return lifted(x, self.scale)


def lifted(image: np.ndarray, mean: float) -> np.ndarray:
    """Return an image whose pixels all move in the variables of `Power`: none below a thousandth of the mean."""
    return np.maximum(image, FLOOR * mean)


@jax.custom_jvp
def _three_halves(x):
    size = jnp.abs(x)
    return size * jnp.sqrt(size)


@_three_halves.defjvp
def _three_halves_slope(primals, tangents):
    # by hand: the root's own slope is infinite at zero
    (x,), (change,) = primals, tangents
    root = safe_sqrt(jnp.abs(x))
    return jnp.abs(x) * root, 1.5 * jnp.sign(x) * root * change


def safe_sqrt(square: Float[Array, "*any"]) -> Float[Array, "*any"]:
    """Square root with derivative zero at zero, so that flat maps have a gradient."""
    real = square > 0
    return jnp.where(real, jnp.sqrt(jnp.where(real, square, 1.0)), 0.0)


@dataclass(frozen=True)
class UnitFraction:
    """A fraction in (0, 1): x = 1/2 + atan(z / 0.5) / π."""

    def forward(self, z):
        """Return the fraction."""
        return 0.5 + jnp.arctan(z / 0.5) / jnp.pi

    def inverse(self, x):
        """Return z; infinite at 0 and 1."""
        return 0.5 * jnp.tan(jnp.pi * (x - 0.5))


@dataclass(frozen=True)
class SignedFraction:
    """A fraction in (-1, 1): x = 2 atan(z) / π."""

    def forward(self, z):
        """Return the fraction."""
        return 2 * jnp.arctan(z) / jnp.pi

    def inverse(self, x):
        """Return z; infinite at -1 and 1."""
        return jnp.tan(jnp.pi * x / 2)


@dataclass(frozen=True)
class Angle:
    """An angle in (-π/2, π/2): x = atan(z)."""

    def forward(self, z):
        """Return the angle."""
        return jnp.arctan(z)

    def inverse(self, x):
        """Return z."""
        return jnp.tan(x)


def check_mode(mode: str, transform: str | None) -> str:
    """Return the plain name of a mode, or raise when its transform is not the one it needs; None: not chosen yet."""
    mode = ALIASES.get(mode, mode)
    if mode not in SOLVED:
        raise ValueError(f"unknown mode {mode!r}.{suggestion(str(mode), [*SOLVED, *ALIASES])}")
    wanted = INTENSITY if mode == "I" else (REQUIRED[mode],)
    if transform is not None and transform not in wanted:
        raise ValueError(f"mode {mode!r} needs transform={' or '.join(map(repr, wanted))}, not {transform!r}.")
    return mode


def transforms_of(mode: str, transform: str, scale: float) -> dict[str, Any]:
    """Transform of every solved map. scale: mean brightness, Jy per pixel.

    Intensity beside polarisation is solved in its logarithm.
    """
    every = {
        "I": {"power": Power(scale), "identity": Identity()}.get(transform, Log()),
        "m_share": UnitFraction(),
        "v_share": SignedFraction(),
        "rho": UnitFraction(),
        "psi": Angle(),
        "phi": Identity(),
    }
    return {name: every[name] for name in SOLVED[mode]}


def start_of(mode: str, maps: Mapping[str, Float[np.ndarray, " n"]]) -> tuple[dict, dict]:
    """Split physical maps I, m, phi, v (missing ones are zero) into solved parameters and what is kept."""
    full = {name: maps.get(name, np.zeros_like(maps["I"])) for name in ("I", "m", "phi", "v")}
    shares = {
        "m_share": full["m"] / np.maximum(1 - np.abs(full["v"]), 1e-12),
        "v_share": full["v"] / np.maximum(1 - np.abs(full["m"]), 1e-12),
        "rho": np.hypot(full["m"], full["v"]),
        "psi": np.arctan2(full["v"], full["m"]),
    }
    solved = {name: {**full, **shares}[name] for name in SOLVED[mode]}
    replaced = {"m_share": ("m",), "v_share": ("v",), "rho": ("m", "v")}
    gone = {name for key in solved for name in (key, *replaced.get(key, ()))}
    kept = {} if mode == "I" else {name: value for name, value in full.items() if name not in gone}
    return solved, kept


def physical(params: Mapping[str, Stack], kept: Mapping[str, Stack]) -> dict[str, Stack]:
    """Maps at the reference frequency: I, and for polarised modes m, phi, v; spectral maps are passed on."""
    maps = {**kept, **params}
    if "rho" in maps:
        rho, psi = maps.pop("rho"), maps.pop("psi")
        return {**maps, "m": rho * jnp.cos(psi), "v": rho * jnp.sin(psi)}
    if "m_share" in maps:
        return {**maps, "m": (1 - jnp.abs(maps["v"])) * maps.pop("m_share")}
    if "v_share" in maps:
        return {**maps, "v": (1 - jnp.abs(maps["m"])) * maps.pop("v_share")}
    return maps


def at_frequency(maps: Maps, log_ratio: Any, fraction: str = "odds") -> dict[str, Float[Array | np.ndarray, "... n"]]:
    """Maps at another frequency, log_ratio = l = ln(ν/ν_ref), a number, or (k, 1) for maps (k, n) at k frequencies.

    I grows by exp(alpha l + beta l²), phi by rm (e^{-2l} - 1). The odds rho/(1 - rho) of the total fraction grow by
    exp(alphap l + betap l²), so it stays below 1 and is unchanged at ν_ref. fraction='reference' takes rho itself for
    the odds, as eht-imaging does: its maps at ν_ref are then rho/(1 + rho).
    """
    if fraction not in FRACTIONS:
        raise ValueError(f"unknown fraction law {fraction!r}.{suggestion(str(fraction), FRACTIONS)}")
    out = dict(maps)
    if "alpha" in maps or "beta" in maps:
        out["I"] = maps["I"] * jnp.exp(_polynomial(maps, "alpha", "beta", log_ratio))
    if "rm" in maps:
        out["phi"] = maps["phi"] + maps["rm"] * jnp.expm1(-2.0 * log_ratio)
    if "alphap" in maps or "betap" in maps:
        growth = jnp.exp(_polynomial(maps, "alphap", "betap", log_ratio))
        square = maps["m"] ** 2 + maps["v"] ** 2
        rho = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
        share = growth / ((1.0 if fraction == "reference" else 1 - rho) + rho * growth)
        out["m"], out["v"] = maps["m"] * share, maps["v"] * share
    return out


def _polynomial(maps, first, second, log_ratio):
    return sum(maps[name] * log_ratio**k for k, name in ((1, first), (2, second)) if name in maps)


def stokes(
    maps: Mapping[str, Float[Array | np.ndarray, "... n"]], wanted: tuple[str, ...]
) -> Float[Array, "stokes ... n"]:
    """Stack of Stokes images (len(wanted), ..., n) Jy per pixel from physical maps; wanted: some of 'I', 'Q', 'U', 'V'.

    Each has the shape that I has.
    """
    makers = {
        "I": lambda: maps["I"],
        "Q": lambda: maps["I"] * maps["m"] * jnp.cos(maps["phi"]),
        "U": lambda: maps["I"] * maps["m"] * jnp.sin(maps["phi"]),
        "V": lambda: maps["I"] * maps["v"],
    }
    return jnp.stack([makers[name]() for name in wanted])


def random_polarisation(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Start for n pixels without polarisation: rho = 0.2 (1 + 0.01 r), phi and psi 0.01 r', r uniform in [0, 1).

    Returns m, phi, v (n,); the same seed gives the same start.
    """
    r, r_phi, r_psi = np.random.default_rng(seed).random((3, n))
    rho, psi = 0.2 * (1 + 0.01 * r), 0.01 * r_psi
    return {"m": rho * np.cos(psi), "phi": 0.01 * r_phi, "v": rho * np.sin(psi)}


def embed(
    grid: Grid, values: Float[Array | np.ndarray, "*stack n"], index: Any, outside: Any = 0.0
) -> Float[Array, "*stack ny nx"]:
    """Put masked pixel values (..., n) onto the grid → (..., ny, nx), with `outside` where the mask is not."""
    if index is not None:
        blank = jnp.full((*values.shape[:-1], grid.n_pixels), outside, values.dtype)
        values = blank.at[..., index].set(values, indices_are_sorted=True, unique_indices=True)
    # the barrier keeps loops over rows and columns apart from those over pixels: joined, they are not vectorised
    return jax.lax.optimization_barrier(values.reshape(*values.shape[:-1], *grid.shape))
