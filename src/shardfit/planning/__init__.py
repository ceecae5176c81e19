"""What an evaluation will cost, before any data are placed."""

from shardfit.planning.prediction import Plan, plan
from shardfit.planning.scaling import Cluster, Scaled

__all__ = ["Cluster", "Plan", "Scaled", "plan"]
