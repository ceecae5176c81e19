"""`shardfit devices`: what JAX sees."""

import argparse
from collections import Counter
from collections.abc import Sequence

from shardfit.cli import options
from shardfit.cli.outcome import record_output
from shardfit.cli.versions import versions

EXAMPLES = ("shardfit devices", "shardfit devices --json")


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Nothing to choose."""
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print versions and devices."""
    import jax

    kinds = Counter((device.platform, device.device_kind) for device in jax.devices())
    memory = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    seen = [{"platform": platform, "kind": kind, "count": count} for (platform, kind), count in kinds.items()]
    about = {"processes": jax.process_count(), "devices": seen, "bytes_per_device": memory}
    if record_output(args, versions=versions(), **about):
        return 0
    for name, text in versions().items():
        print(f"{name:<12} {text}")
    print(f"{'processes':<12} {jax.process_count()}")
    for (platform, kind), count in kinds.items():
        print(f"{'devices':<12} {count} × {platform}" + (f" ({kind})" if kind != platform else ""))
    if memory:
        print(f"{'memory':<12} {memory / 2**30:.1f} GiB per device")
    if all(platform == "cpu" for platform, _ in kinds):
        print("More CPU devices: XLA_FLAGS=--xla_force_host_platform_device_count=N before the program starts.")
    return 0
