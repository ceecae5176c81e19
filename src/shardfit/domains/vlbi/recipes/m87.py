"""The released M87 pipeline of 2019 (ApJL 875 L4, eht-imaging) as a preset: four rounds with self-calibration between.

Weights of the data rise from round to round as the gains are solved for: first closures and loose amplitudes, then
visibilities. The LMT lost amplitude, so it is calibrated to a Gaussian first and solved for separately after round 2.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from shardfit.domains.vlbi.imaging_options import PreCal, Round, SelfCal
from shardfit.domains.vlbi.recipes.eht import EHT

_TOLERANCE = (0.02, 0.2)  # a gain above 1 means a station better than its calibration says: unlikely
_PHASES = SelfCal("phase")
_LMT = SelfCal("both", ("LM",), _TOLERANCE)
_ALL_BUT_PV = SelfCal("both", ("AA", "AP", "AZ", "JC", "LM", "SM", "SP"), _TOLERANCE)
_FINAL = Round(
    data=MappingProxyType({"vis": 10.0, "cphase": 20.0, "logcamp": 20.0}), tolerance=0.01, calibrate=(_ALL_BUT_PV,)
)

M87: Mapping[str, Any] = MappingProxyType(
    {
        **EHT,
        "flux": 0.6,
        "stop": 1e-4,
        "taper_uas": 5.0,
        "precal": PreCal(("LM",), flux=0.6, fwhm_uas=60.0),
        "rounds": (
            Round(calibrate=(_PHASES,), afresh=False),
            Round(data=MappingProxyType({"vis": 2.0, "cphase": 10.0, "logcamp": 10.0}), calibrate=(_PHASES, _LMT)),
            _FINAL,
            _FINAL,
        ),
    }
)
