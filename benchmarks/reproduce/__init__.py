"""The headline figures that other systems published, run here: `python -m benchmarks.reproduce NAME`."""
