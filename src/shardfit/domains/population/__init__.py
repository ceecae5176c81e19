"""Populations: halos and the galaxies in them, compared through summed statistics."""
