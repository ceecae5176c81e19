"""Chains: samplers and their metrics, adaptation, groups on devices and workers, blocks on disk."""
