"""Where tests find their numbers: tests/data in the repository, and measured data that ship with the package."""

from pathlib import Path

from shardfit import data

REFERENCE = Path(__file__).parent / "data"
M87 = data.folder("m87") / "SR1_M87_2017_101_lo_hops_netcal_StokesI.uvfits"
