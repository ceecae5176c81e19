"""What an evaluation will cost, before any data are placed."""

from shardfit.plan.prediction import Plan, plan

__all__ = ["Plan", "plan"]
