"""Pages of runs while they run, and an index of a folder of runs; drawn from what the folders hold."""
