"""Text files in eht-imaging's layout, written here by hand."""

import numpy as np
import pytest

from shardfit.domains.vlbi.ehtim_text import read_ehtim_text

HEAD = """\
# SRC: M87
# RA: 12 h 30 m 49.4234 s
# DEC: -12 deg 23 m 28.0439 s
# MJD: 57854
# RF: 227.0707 GHz
# BW: 1.8560 GHz
# PHASECAL: 0
# AMPCAL: 1
# ----------------------------------------------------------------
# Site       X             Y             Z         SEFDR    SEFDL   FR_PAR  FR_EL  FR_OFF  DR_RE DR_IM DL_RE DL_IM
# AA  2225061.16360 -5440057.36994 -2481681.15054   100.00   400.00  1.00 0.00 0.00  0.0000 0.0000 0.0000 0.0000
# AZ -1828796.20000 -5054406.80000  3427865.20000 11000.00 11000.00  1.00 1.00 0.00  0.0000 0.0000 0.0000 0.0000
# LM  -768715.63200 -5988507.07200  2063354.85200  4500.00  4500.00  1.00 -1.0 0.00  0.0000 0.0000 0.0000 0.0000
# ----------------------------------------------------------------
# time (hr) tint T1 T2 Tau1 Tau2 U (lambda) V (lambda) {names}
"""
STOKES = HEAD.format(
    names="Iamp (Jy) Iphase(d) Qamp (Jy) Qphase(d) Uamp Uphase Vamp Vphase Isigma Qsigma Usigma Vsigma"
)
HANDS = HEAD.format(names="RRamp (Jy) RRphase(d) LLamp LLphase RLamp RLphase LRamp LRphase RRsig LLsig RLsig LRsig")
ROW = "{time} 10.0 {a} {b} 0.0 0.0 1000000000.0 -2000000000.0 {values}\n"


def test_stokes(tmp_path):
    path = tmp_path / "obs.txt"
    rows = ROW.format(time=1.5, a="AA", b="LM", values="0.5 90.0 0.1 0.0 0.2 180.0 0.0 0.0 0.01 0.02 0.02 0.03")
    rows += ROW.format(time=1.5, a="LM", b="AZ", values="0.4 -30.0 nan 0.0 nan 0.0 0.0 0.0 0.02 0.0 0.0 0.03")
    path.write_text(STOKES + rows)
    obs = read_ehtim_text(path)
    assert (obs.source, obs.mjd, len(obs)) == ("M87", 57854, 2)
    assert obs.ra_hours == pytest.approx(12.513728722)
    assert obs.dec_deg == pytest.approx(-12.3911233)
    assert obs.freq_hz == 227.0707e9
    assert obs.stations.sefd == pytest.approx([200, 11000, 4500])
    first = obs.baseline_names.index("AA-LM")
    assert obs.vis["I"][first] == pytest.approx(0.5j)
    assert obs.vis["U"][first] == pytest.approx(-0.2)
    other = 1 - first  # given as LM-AZ, kept as AZ-LM
    assert obs.baseline_names[other] == "AZ-LM"
    assert obs.u[other] == -1e9
    assert obs.vis["I"][other] == pytest.approx(0.4 * np.exp(1j * np.pi / 6))
    assert np.isinf(obs.sigma["Q"][other])


def test_hands(tmp_path):
    path = tmp_path / "obs.txt"
    path.write_text(HANDS + ROW.format(time=1.5, a="AA", b="LM", values="0.6 0 0.4 0 0.1 0 0.1 0 0.01 0.01 0.02 0.02"))
    obs = read_ehtim_text(path)
    assert obs.vis["I"][0] == pytest.approx(0.5)
    assert obs.vis["V"][0] == pytest.approx(0.1)
    assert obs.vis["Q"][0] == pytest.approx(0.1)
    assert obs.sigma["I"][0] == pytest.approx(0.01 / np.sqrt(2))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nothing", "no comment 'SRC"),
        (STOKES, "no rows"),
        (STOKES.replace("57854", "inf"), "MJD: 'inf' is no day"),
        (STOKES.replace("# RF: 227.0707 GHz", "# RF: "), "no comment 'RF"),
        (STOKES + "1.0 2.0\n", "line 16: not a row of 20 columns"),
        (STOKES.replace("12 h 30 m", "12:30"), "RA: .* is not hours"),
        (STOKES + ROW.format(time=1.5, a="AA", b="XX", values=" ".join("1" * 12)), "no station 'XX'"),
        ("\n".join(line for line in STOKES.splitlines() if "AZ" not in line and "LM" not in line), "fewer than two"),
    ],
)
def test_other_files(tmp_path, text, expected):
    path = tmp_path / "obs.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=expected):
        read_ehtim_text(path)
