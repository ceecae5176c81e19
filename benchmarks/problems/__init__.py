"""Problem sets shared by the benchmarks and the tests."""
