"""What imaging needs beside the core: files of FITS, and the NUFFT."""

from shardfit.cli.doctor.finding import GOOD, NOTE, Finding


def nufft() -> Finding:
    """Value, gradient and batches of the NUFFT against exact sums."""
    from shardfit.domains.vlbi.nufft import Nufft, available, self_test

    if not available():
        return Finding("NUFFT", NOTE, "jax-finufft is not installed", "pip install 'shardfit[vlbi]' for large images")
    self_test(Nufft())
    return Finding("NUFFT", GOOD, "value, gradient and batches agree with exact sums")


CHECKS = (nufft,)
