"""Choices that are written down beside the code that makes them, so that help does without JAX, are those it takes."""

import numpy as np
import pytest

from shardfit.cli import main
from shardfit.cli.population.config import STUDIES
from shardfit.domains.vlbi import imaging_options
from shardfit.domains.xpcs import options as xpcs


def test_of_images():
    from shardfit.domains.vlbi import forward, transforms
    from shardfit.domains.vlbi.closures import triangles
    from shardfit.domains.vlbi.imaging_options import ImagingOptions
    from shardfit.domains.vlbi.recipes import known_image, observe

    assert ("auto", *forward.OPERATORS) == imaging_options.OPERATORS
    assert imaging_options.TRANSFORMS == transforms.INTENSITY
    seen = observe(known_image("ring", 16), stop_h=4.0, cadence_s=3600.0)
    for count in imaging_options.COUNTS:
        assert len(triangles(seen, count=count)) > 0
        assert ImagingOptions(count=count).count == count
    operator = forward.Nufft()
    assert ImagingOptions(operator=operator).operator is operator  # an object in place of a name
    with pytest.raises(ValueError, match="operator = 'nuft' must be one of .* Did you mean 'nufft'"):
        ImagingOptions(operator="nuft")


def test_of_correlations():
    from shardfit.domains.xpcs import scaling
    from shardfit.domains.xpcs.cleaning import corrected_diagonal

    for rule in xpcs.DIAGONALS:
        if rule != "keep":
            assert np.isfinite(corrected_diagonal(np.ones((9, 9)), rule)).all()
    for mode in xpcs.SCALINGS:
        assert len(scaling.scale_basis(mode, np.linspace(0, 150, 7))) == 7


def test_of_populations():
    from shardfit.domains.population import recipes

    assert tuple(recipes.STUDIES) == STUDIES


def test_a_science_that_is_not_there_is_named_before_its_section(tmp_path, capsys):
    path = tmp_path / "survey.toml"
    path.write_text('science = "vlbii"\nout = "run"\n[vlbii]\n[vlbi]\n[axes]\ntv = [1]\n')
    assert main(["survey", "run", str(path)]) == 2
    assert "Did you mean 'vlbi'" in capsys.readouterr().err


def test_models_that_python_alone_can_give_are_not_offered_to_files(tmp_path, capsys):
    path = tmp_path / "line.toml"
    path.write_text('[inversion]\nloss = "l3"\n')
    assert main(["seismic", "invert", str(path)]) == 2
    told = capsys.readouterr().err
    assert "[inversion] loss = 'l3' must be one of l2, l1, huber" in told and "Loss" not in told
