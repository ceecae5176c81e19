"""Constants and unit names of the VLBI domain."""

import math

# π is cut after twelve decimals: published fields of view and pixel sizes in micro-arcseconds rest on this value
DEGREE = 3.141592653589 / 180  # rad
UAS = DEGREE / 3600 * 1e-6  # rad, one micro-arcsecond
C = 299792458.0  # m/s
FWHM_TO_SIGMA = 1 / (2 * math.sqrt(2 * math.log(2)))
MJD_ZERO = 2400000.5  # Julian date of MJD 0
STOKES = ("I", "Q", "U", "V")
HANDS = ("RR", "LL", "RL", "LR")
