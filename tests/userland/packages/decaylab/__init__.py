"""A user's package: everything that the guides say can be written outside of the library, and nothing of its tests."""

from shardfit.sciences import Science

SCIENCE = Science("decaylab", "half-lives from counts over time", survey="decaylab.survey")
