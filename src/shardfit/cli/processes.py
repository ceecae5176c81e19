"""Devices and place of this process, which the command line owns.

It may ask JAX for virtual CPU devices before the first array; of many processes, one writes files and prints.
"""

import contextlib


def request_devices(count: int | None, default: int = 1) -> int:
    """Ask for `count` CPU devices, None meaning `default` or as many as there are; return how many to use.

    GPUs and TPUs are taken as they come, and so are the devices of one of many processes, which the launcher gave it.
    Must run before JAX makes its first array.
    """
    import jax

    from shardfit.distributed.processes import client
    from shardfit.io.compile_cache import use_compile_cache

    use_compile_cache()
    if count is not None and count < 1:
        raise ValueError(f"--devices {count}: at least 1 device is needed.")
    wanted = default if count is None else count
    if client() is not None:
        wanted = len(jax.devices()) if count is None else count
    else:
        with contextlib.suppress(RuntimeError):  # JAX has started already: what is there is counted below
            jax.config.update("jax_num_cpu_devices", wanted)
    seen = len(jax.devices())
    if count is not None and seen < count:
        raise ValueError(
            f"--devices {count}: JAX sees {seen} ({jax.devices()[0].platform}). Ask for fewer, or set "
            "JAX_PLATFORMS=cpu to use virtual CPU devices."
        )
    return min(wanted, seen)


def writes_files() -> bool:
    """Return whether this process is the one that writes a command's files: the first of many, or the only one."""
    import jax

    return jax.process_index() == 0
