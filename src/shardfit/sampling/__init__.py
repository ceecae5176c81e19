"""Posteriors: chains, shards, perturbed refits, and what can be said of them."""
