"""Consensus: shards of the rows sampled by themselves, combined and corrected."""
