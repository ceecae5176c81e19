"""From what a solver moves to maps on the sky.

Physical maps, each (n,) over the pixels of the mask: I (Jy per pixel), m and v (linear and circular fraction), phi
(twice the polarisation angle), and spectral maps. `P = I m exp(i phi)`, `V = I v`; the total fraction rho and the angle
psi of the papers are m = rho cos psi, v = rho sin psi.

| mode | solved | transform | kept |
| I | I | power, log or identity | |
| P, IP (QU, IQU) | (I), zq, zu | ball | v |
| V, IV | (I), zv | ball | m, phi |
| IPV (IQUV) | I, zq, zu, zv | ball | |
| P, IP | (I), m_share, phi | mcv: m = (1 - |v|) m_share, m_share in (0, 1) | v |
| V, IV | (I), v_share | vcv: v = (1 - |m|) v_share, v_share in (-1, 1) | m, phi |
| IPV | I, rho, phi, psi | polcv: rho in (0, 1), psi in (-π/2, π/2) | |

`power` is I = s |x|^1.5, with s the mean brightness: images converge in it. In the logarithm a pixel moves in
proportion to its brightness, so that faint ones freeze.

`ball` is (Q, U, V)/I = z/√(1 + |z|²): three numbers without limits that fill the ball of what is physical, smooth where
there is no polarisation, and no angle that turns about. What is kept leaves less room. I is then solved as by itself.
mcv, vcv and polcv, with I in its logarithm, are those of eht-imaging.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.errors import suggestion
from shardfit.core.transforms import Identity, Log
from shardfit.domains.vlbi.arrays import Array, Float
from shardfit.domains.vlbi.grid import Grid

Pixels = Float[Array | np.ndarray, " n"]  # over the mask
Maps = Mapping[str, Pixels]
Stack = Float[Array | np.ndarray, "... n"]  # of the frames of a movie

REFERENCE = {
    "P": ("m_share", "phi"),
    "IP": ("I", "m_share", "phi"),
    "V": ("v_share",),
    "IV": ("I", "v_share"),
    "IPV": ("I", "rho", "phi", "psi"),
}
BALL = {"I": ("I",), "P": ("zq", "zu"), "V": ("zv",)}  # by letter of a mode
MODES = ("I", *REFERENCE)
ALIASES = {"QU": "P", "IQU": "IP", "IQUV": "IPV"}
POLARISED = {"P": "mcv", "IP": "mcv", "V": "vcv", "IV": "vcv", "IPV": "polcv"}  # the other choice than ball
SPECTRAL = ("alpha", "beta", "alphap", "betap", "rm", "cm")
FRACTIONS = ("odds", "reference")
INTENSITY = ("power", "log", "identity")
LARGEST = 0.999  # fraction that a start may have in the coordinates of `ball`, infinite at 1
FLOOR = 1e-3  # of the mean brightness: darker pixels of a start would hardly move, for at x = 0 the slope is zero


@dataclass(frozen=True)
class Power:
    """Brightness I = scale |x|^1.5. scale: Jy per pixel, the mean brightness, so that x is about 1."""

    scale: float

    def forward(self, z):
        """Return the brightness."""
        return _power(z, self.scale)

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


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _power(x, scale):
    size = scale ** (2 / 3) * jnp.abs(x)
    return jnp.sqrt(size * size * size)  # the root last: compilers keep what they deem costly, the rest is done again


@_power.defjvp
def _power_slope(scale, primals, tangents):
    # by hand: the root's own slope is infinite at zero
    (x,), (change,) = primals, tangents
    return _power(x, scale), 1.5 * scale * jnp.sign(x) * safe_sqrt(jnp.abs(x)) * change


def safe_sqrt(square: Float[Array | np.ndarray, "*any"]) -> Float[Array, "*any"]:
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
    """Return the plain name of a mode, or raise for a transform that it does not have; None: not chosen yet."""
    mode = ALIASES.get(mode, mode)
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r}.{suggestion(str(mode), [*MODES, *ALIASES])}")
    known = INTENSITY if mode == "I" else ("ball", POLARISED[mode])
    if transform is not None and transform not in known:
        raise ValueError(f"mode {mode!r} needs transform={' or '.join(map(repr, known))}, not {transform!r}.")
    return mode


def solved_maps(mode: str, transform: str) -> tuple[str, ...]:
    """Return the names of what a solver moves."""
    if transform in POLARISED.values():
        return REFERENCE[mode]
    return tuple(name for letter in mode for name in BALL[letter])


def mode_of(names: Any) -> tuple[str, str]:
    """Return mode and transform whose solved maps have these names; 'ball' for I alone."""
    for mode in MODES:
        for transform in ("ball", *([POLARISED[mode]] if mode in POLARISED else [])):
            if set(solved_maps(mode, transform)) == set(names):
                return mode, transform
    raise ValueError(f"no mode solves for {', '.join(names)}.")


def transforms_of(names: Any, intensity: str, scale: float) -> dict[str, Any]:
    """Transform of every solved map. intensity: of I, 'power', 'log' or 'identity'; scale: its mean, Jy per pixel."""
    every = {
        "I": {"power": Power(scale), "log": Log(), "identity": Identity()}[intensity],
        "m_share": UnitFraction(),
        "v_share": SignedFraction(),
        "rho": UnitFraction(),
        "psi": Angle(),
    }
    return {name: every.get(name, Identity()) for name in names}


def start_of(mode: str, transform: str, maps: Mapping[str, Float[np.ndarray, " n"]]) -> tuple[dict, dict]:
    """Split physical maps I, m, phi, v (missing ones are zero) into solved parameters and what is kept."""
    full = {name: maps.get(name, np.zeros_like(maps["I"])) for name in ("I", "m", "phi", "v")}
    names = solved_maps(mode, transform)
    solved = {name: values for name, values in {**full, **_shares(full), **_free(full)}.items() if name in names}
    replaced = {"m_share": "m", "v_share": "v", "rho": "mv", "zq": ("m", "phi"), "zv": "v"}
    gone = {name for key in solved for name in (key, *replaced.get(key, ()))}
    kept = {} if mode == "I" else {name: value for name, value in full.items() if name not in gone}
    return solved, kept


def _shares(full: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        "m_share": full["m"] / np.maximum(1 - np.abs(full["v"]), 1e-12),
        "v_share": full["v"] / np.maximum(1 - np.abs(full["m"]), 1e-12),
        "rho": np.hypot(full["m"], full["v"]),
        "psi": np.arctan2(full["v"], full["m"]),
    }


def _free(full: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the coordinates of `ball`; a fraction of 1 has none and is taken as a little less."""
    parts = {"zq": full["m"] * np.cos(full["phi"]), "zu": full["m"] * np.sin(full["phi"]), "zv": full["v"]}
    total = np.hypot(full["m"], full["v"])
    room = np.sqrt(np.maximum(1 - total**2, 1 - LARGEST**2))
    return {name: value / room for name, value in parts.items()}


def physical(params: Mapping[str, Stack], kept: Mapping[str, Stack]) -> dict[str, Stack]:
    """Maps at the reference frequency: I, and for polarised modes m, v and either phi or q = Q/I and u = U/I.

    Spectral maps are passed on.
    """
    maps = {**kept, **params}
    if "zq" in maps or "zv" in maps:
        return _from_ball(maps)
    if "rho" in maps:
        rho, psi = maps.pop("rho"), maps.pop("psi")
        return {**maps, "m": rho * jnp.cos(psi), "v": rho * jnp.sin(psi)}
    if "m_share" in maps:
        return {**maps, "m": (1 - jnp.abs(maps["v"])) * maps.pop("m_share")}
    if "v_share" in maps:
        return {**maps, "v": (1 - jnp.abs(maps["m"])) * maps.pop("v_share")}
    return maps


def _from_ball(maps: dict[str, Any]) -> dict[str, Any]:
    """Return maps with fractions for coordinates; what is kept, v or m, leaves the rest of the ball."""
    free = {name: maps.pop(name) for name in ("zq", "zu", "zv") if name in maps}
    held = 0.0 if len(free) == 3 else maps["m" if "zv" in free else "v"]
    size = jnp.sqrt((1 - held**2) / (1 + sum(z**2 for z in free.values())))
    found = {name[1]: z * size for name, z in free.items()}
    if "q" in found:
        found["m"] = safe_sqrt(found["q"] ** 2 + found["u"] ** 2)
    return {**maps, **found}


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
        turn = maps["rm"] * jnp.expm1(-2.0 * log_ratio)
        if "q" in maps:
            cos, sin = jnp.cos(turn), jnp.sin(turn)
            out["q"], out["u"] = maps["q"] * cos - maps["u"] * sin, maps["q"] * sin + maps["u"] * cos
        else:
            out["phi"] = maps["phi"] + turn
    if "alphap" in maps or "betap" in maps:
        growth = jnp.exp(_polynomial(maps, "alphap", "betap", log_ratio))
        rho = safe_sqrt(maps["m"] ** 2 + maps["v"] ** 2)
        share = growth / ((1.0 if fraction == "reference" else 1 - rho) + rho * growth)
        out |= {name: out[name] * share for name in ("m", "v", "q", "u") if name in out}
    return out


def _polynomial(maps, first, second, log_ratio):
    return sum(maps[name] * log_ratio**k for k, name in ((1, first), (2, second)) if name in maps)


def stokes(
    maps: Mapping[str, Float[Array | np.ndarray, "... n"]], wanted: tuple[str, ...]
) -> Float[Array, "stokes ... n"]:
    """Stack of Stokes images (len(wanted), ..., n) Jy per pixel from physical maps; wanted: some of 'I', 'Q', 'U', 'V'.

    Each has the shape that I has.
    """
    polar = "q" not in maps
    makers = {
        "I": lambda: maps["I"],
        "Q": lambda: maps["I"] * (maps["m"] * jnp.cos(maps["phi"]) if polar else maps["q"]),
        "U": lambda: maps["I"] * (maps["m"] * jnp.sin(maps["phi"]) if polar else maps["u"]),
        "V": lambda: maps["I"] * maps["v"],
    }
    return jnp.stack([makers[name]() for name in wanted])


def filled(
    grid: Grid, values: Float[Array | np.ndarray, "*stack n"], index: Any, outside: Any = 0.0
) -> Float[Array | np.ndarray, "*stack pixels"]:
    """Put masked pixel values (..., n) among all pixels → (..., ny * nx), with `outside` where the mask is not."""
    if index is None:
        return values
    blank = jnp.full((*values.shape[:-1], grid.n_pixels), outside, values.dtype)
    return blank.at[..., index].set(values, indices_are_sorted=True, unique_indices=True)


def embed(grid: Grid, values: Float[Array | np.ndarray, "*stack n"], index: Any) -> Float[Array, "*stack ny nx"]:
    """Put masked pixel values (..., n) onto the grid → (..., ny, nx), zero where the mask is not."""
    # the barrier keeps loops over rows and columns apart from those over pixels: joined, they are not vectorised
    return jax.lax.optimization_barrier(filled(grid, values, index).reshape(*values.shape[:-1], *grid.shape))
