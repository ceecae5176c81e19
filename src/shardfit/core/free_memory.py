"""How much memory is left, on a device and on its host."""

import os
from pathlib import Path


def available_bytes(devices: list) -> int:
    """Return the free memory of one device; CPU devices share their host's."""
    stats = devices[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return host_available_bytes() // len(devices)


def host_available_bytes(root: Path = Path("/")) -> int:
    """Return the host's available memory, or what is left of a container's limit if that is less."""
    limits = [*_cgroup_left(root)]
    meminfo = root / "proc/meminfo"
    if meminfo.exists():
        lines = (line.split() for line in meminfo.read_text().splitlines())
        limits += [int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:"]
    if not limits and hasattr(os, "sysconf"):
        known = [n for n in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES") if n in os.sysconf_names]
        limits += [os.sysconf(name) * os.sysconf("SC_PAGE_SIZE") for name in known[:1]]
    if not limits:
        raise OSError("this system does not say how much memory is free. Pass plan(..., memory=<bytes per device>).")
    return max(0, min(limits))


def _cgroup_left(root: Path):
    """Yield limit minus use of this process's control groups and their parents (both versions)."""
    listing = root / "proc/self/cgroup"
    for line in listing.read_text().splitlines() if listing.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, limit, used = "sys/fs/cgroup", "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base, limit, used = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        inner = Path(path.lstrip("/"))
        for folder in (inner, *inner.parents):
            group = root / base / folder
            if (group / limit).exists() and (group / used).exists():
                bound = (group / limit).read_text().strip()
                if bound != "max":
                    yield int(bound) - int((group / used).read_text()) + _reclaimable(group / "memory.stat")


def _reclaimable(stat: Path) -> int:
    """Return the file cache counted as used, which the system gives back on demand."""
    words = (line.split() for line in stat.read_text().splitlines()) if stat.exists() else ()
    return sum(int(w[1]) for w in words if w[0] == "inactive_file")
