"""Chains of NUTS: trees, adaptation, groups on devices and workers, blocks on disk."""
