"""Perturbed refits: posteriors of many parameters, and evidence."""
