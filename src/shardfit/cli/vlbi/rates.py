"""What `shardfit bench` measures of imaging: M87, which comes with the package."""

from shardfit.cli.bench import Case


def cases() -> list[Case]:
    """One evaluation of the objective of an M87 image of 64 x 64 pixels, amplitudes and closures."""
    from shardfit import data
    from shardfit.cli.vlbi.files import read_observation
    from shardfit.domains.vlbi.recipes.surveys import imaging_survey

    file = data.folder("m87") / "SR1_M87_2017_101_lo_hops_netcal_StokesI.uvfits"
    made = imaging_survey(read_observation(str(file)), {"simple": (1.0,)}, preset="eht", flux=0.6)
    return [Case("M87, 64 x 64 pixels", made.problem, "value_and_grad", "images", 1)]
