"""How an evaluation scales: a model of its time on N devices, from what rows cost here and what the shards exchange.

    time(N) = computing(N) + log2(N) · (messages · latency + bytes / bandwidth) + jitter · e(N) · computing(N)

computing(N) is the time of the fullest device's rows, n/N rounded up, with what a call costs by itself. A sum over
N devices takes log2(N) rounds in which pairs exchange all of it. All wait for the slowest: e(N) is by how many
standard deviations the largest of N normal numbers exceeds their mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from scipy.special import ndtri

from shardfit.core.errors import suggestion
from shardfit.planning.exchange import Exchange
from shardfit.planning.timing import Curve
from shardfit.planning.units import bytes_text, seconds_text


@dataclass(frozen=True)
class Cluster:
    """What a prediction assumes of the devices and of what connects them.

    latency: seconds that a message without bytes takes from one device to another, software included.
    bandwidth: bytes per second between two of them.
    jitter: standard deviation of the time that the same work takes, in parts of it.
    speed: of a device there, in parts of the speed of the one here.
    """

    latency: float = 5e-6
    bandwidth: float = 24e9
    jitter: float = 0.02
    speed: float = 1.0

    def __post_init__(self):
        for name in ("latency", "bandwidth", "jitter", "speed"):
            value = getattr(self, name)
            least = "zero or positive" if name in ("latency", "jitter") else "positive"
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"Cluster: {name}={value!r} must be a finite number.")
            if value < 0 or (value == 0 and least == "positive"):
                raise ValueError(f"Cluster: {name}={value!r} must be {least}.")

    def __str__(self):
        speed = "as fast as here" if self.speed == 1 else f"{self.speed:g} times as fast as here"
        network = f"{seconds_text(self.latency)}, {bytes_text(self.bandwidth)}/s"
        return f"network {network}; devices {speed}, jitter {self.jitter:.1%}"


# orders of magnitude of what is usual: InfiniBand at 200 Gbit/s with remote memory access, TCP over 10 Gbit/s Ethernet
CLUSTERS = {"infiniband": Cluster(), "ethernet": Cluster(latency=50e-6, bandwidth=1.2e9)}


@dataclass(frozen=True)
class Scaled:
    """A prediction for one number of devices: rows of the fullest, seconds by what they are spent on, speed-up."""

    devices: int
    rows: int
    computing: float
    exchange: float
    waiting: float
    speedup: float

    @property
    def seconds(self) -> float:
        """Seconds of one evaluation."""
        return self.computing + self.exchange + self.waiting

    @property
    def efficiency(self) -> float:
        """Speed-up per device."""
        return self.speedup / self.devices


def as_cluster(given: "Cluster | str | None") -> Cluster:
    """Return a cluster, by its name or by 'latency=5e-6,speed=40' as well; what is not named is as by default."""
    if given is None or isinstance(given, Cluster):
        return given or Cluster()
    if not isinstance(given, str):
        raise TypeError(f"cluster={given!r} must be a Cluster, one of {', '.join(map(repr, CLUSTERS))}, or None.")
    if "=" not in given:
        if given not in CLUSTERS:
            raise ValueError(f"unknown cluster {given!r}.{suggestion(given, CLUSTERS)}")
        return CLUSTERS[given]
    known, values = [f.name for f in fields(Cluster)], {}
    for part in given.split(","):
        name, _, number = (word.strip() for word in part.partition("="))
        if name not in known:
            raise ValueError(f"cluster: unknown property {name!r}.{suggestion(name, known)}")
        try:
            values[name] = float(number)
        except ValueError:
            raise ValueError(f"cluster: {name}={number!r} is not a number.") from None
    return Cluster(**values)


def scaled(curve: Curve, rows: int, exchange: Exchange, cluster: Cluster, devices: int) -> Scaled:
    """Return the prediction for so many devices. curve: seconds here by rows; rows: of the longest term, in all."""
    own = max(1, -(-rows // devices))
    computing = curve.at(own) / cluster.speed
    sums = exchange.messages * cluster.latency + exchange.bytes / cluster.bandwidth
    spent = computing, math.log2(devices) * sums, cluster.jitter * expected_largest(devices) * computing
    alone = curve.at(max(1, rows)) / cluster.speed
    return Scaled(devices, own, *spent, speedup=alone / sum(spent))


def expected_largest(n: int) -> float:
    """Return the mean of the largest of n standard normal numbers, by Blom's formula: right to a percent or two."""
    return float(ndtri((n - 0.375) / (n + 0.25)))


def table(scaling: Sequence[Scaled]) -> str:
    """Return the predictions as text, a line each."""
    lines = ["    devices  rows of one   evaluation  computing   exchange    waiting  speed-up  efficiency"]
    for each in scaling:
        times = (seconds_text(s) for s in (each.seconds, each.computing, each.exchange, each.waiting))
        shown = "  ".join(f"{text:>9}" for text in times)
        lines.append(
            f"  {each.devices:>9,}  {each.rows:>11,}    {shown}  {each.speedup:>8.4g}  {each.efficiency:>9.0%}"
        )
    return "\n".join(lines)
