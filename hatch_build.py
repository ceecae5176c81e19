"""Pack kernels that `make wheel` has compiled; with them a wheel is for one kind of machine, without for all."""

import sysconfig
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNELS = "src/shardfit/domains/seismic/prebuilt"


class Kernels(BuildHookInterface):
    """Adds what git ignores, and the tag."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict) -> None:
        """Look for kernels; an editable install needs none."""
        found = list(Path(self.root, KERNELS).glob("*.so"))
        if not found or version == "editable":
            return
        build_data["artifacts"].append(f"{KERNELS}/*.so")
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data |= {"pure_python": False, "tag": f"py3-none-{platform}"}
