"""Surveys: thousands of fits of one objective with different leaves, batched, crash-safe, ranked."""
