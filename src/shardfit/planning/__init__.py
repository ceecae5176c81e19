"""What an evaluation will cost, before any data are placed."""

from shardfit.planning.prediction import Plan, plan

__all__ = ["Plan", "plan"]
