import numpy as np
import pytest

from shardfit.report.values import coordinates, pair, seconds, summaries


@pytest.mark.parametrize(
    ("value", "error", "expected"),
    [
        (0.123456, 0.00171, ("0.1235", "0.0017")),
        (1234.5, 23.0, ("1234", "23")),
        (-1.0, 0.099, ("-1.000", "0.099")),
        (2.0, None, ("2", "")),
        (2.0, np.nan, ("2", "nan")),
        (np.nan, 0.1, ("nan", "0.1")),
        (1.5e-9, 2e-11, ("1.500e-09", "0.020e-09")),
        (0.0, 1e-8, ("0.0e-08", "1.0e-08")),
        (3.0e12, 4.0e10, ("3.000e+12", "0.040e+12")),
    ],
)
def test_value_is_given_to_the_digits_of_its_error(value, error, expected):
    assert pair(value, error) == expected


@pytest.mark.parametrize(
    ("time", "text"), [(0.0354, "35.4 ms"), (2.411, "2.41 s"), (200.0, "3 min 20 s"), (3720, "1 h 2 min")]
)
def test_durations(time, text):
    assert seconds(time) == text


def test_short_arrays_are_listed_and_long_ones_summarised(result):
    long = type(result)(**{**vars(result), "params": {**result.params, "z": np.arange(100.0)}, "stderr": None})
    assert [c.name for c in coordinates(long)] == ["a", "w[0]", "w[1]"]
    assert [row[0] for row in summaries(long)] == ["a", "w[0]", "w[1]", "z"]
    assert "0 … 99" in summaries(long)[-1][1]


def test_units_belong_to_the_whole_leaf(result):
    assert [c.unit for c in coordinates(result)] == ["Hz", "", ""]
    assert summaries(result)[0] == ("a", "2.000", "0.013", "Hz")
