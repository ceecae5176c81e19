"""What imaging of the Event Horizon Telescope's data takes for granted, as a preset: field, errors, extended flux.

From the released M87 pipeline of 2019 (ApJL 875 L4, eht-imaging), its first round.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from shardfit.domains.vlbi.constants import UAS

ZERO_BASELINE = 0.1e9  # wavelengths: shorter baselines see flux that is resolved out on all others
RESOLUTION = 25 * UAS  # of the 2017 array
_ERRORS = {"AA": 0.10, "AP": 0.11, "AZ": 0.07, "LM": 0.22, "PV": 0.10, "SM": 0.15, "JC": 0.14, "SP": 0.07}
# fractional amplitude tolerance of the 2017 stations; the LMT lost amplitude beyond its error budget
EHT2017_TOLERANCE: Mapping[str, float] = MappingProxyType(
    {name: 0.25 * (np.sqrt(1 + e) - 1) + (0.15 if name == "LM" else 0.0) for name, e in _ERRORS.items()}
)
# budget of the a-priori calibration, as errors of the stations' gains: what synthetic data are given
EHT2017_GAINS: Mapping[str, float] = MappingProxyType({name: float(np.sqrt(1 + e) - 1) for name, e in _ERRORS.items()})

EHT: Mapping[str, Any] = MappingProxyType(
    {
        "fov_uas": 128.0,
        "prior_fwhm_uas": 40.0,
        "systematic": 0.02,
        "tolerance": EHT2017_TOLERANCE,
        "cp_uv_min": ZERO_BASELINE,
        "zero_baseline": ZERO_BASELINE,
        "average": True,
    }
)
