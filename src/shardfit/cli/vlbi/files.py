"""Reading of the files the commands are given, and the check that they belong together."""

from typing import Any


def read_observation(file: str) -> Any:
    """Read a uvfits file, channels averaged where that smears nothing, or a text file of eht-imaging (.txt)."""
    if str(file).endswith(".txt"):
        from shardfit.domains.vlbi.ehtim_text import read_ehtim_text

        return read_ehtim_text(file)
    from shardfit.domains.vlbi.uvfits import read_uvfits

    return read_uvfits(file)


def read_pair(file: str, image: str, any_frequency: bool) -> tuple[Any, Any]:
    """Read a uvfits file and an image; raise if the image is of another frequency, unless that is accepted."""
    from shardfit.domains.vlbi.fits_image import read_image
    from shardfit.domains.vlbi.images import SAME_BAND

    obs, model = read_observation(file), read_image(image)
    if not any_frequency and abs(model.freq_hz - obs.freq_hz) > SAME_BAND * obs.freq_hz:
        raise ValueError(
            f"the data are of {obs.freq_hz / 1e9:.6g} GHz, the image is of {model.freq_hz / 1e9:.6g} GHz. Give "
            "--any-frequency if the source looks the same at both."
        )
    return obs, model
