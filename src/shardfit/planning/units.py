"""Numbers with units, for people."""


def bytes_text(n: float) -> str:
    """Return '1.2 GB'."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(n) < 999.5:
            return f"{_digits(n)} {prefix}B"
        n /= 1e3
    return f"{_digits(n)} PB"


def seconds_text(seconds: float) -> str:
    """Return '3.4 ms'."""
    for size, unit in ((1e-6, "ns"), (1e-3, "µs"), (1.0, "ms")):
        if seconds < size:
            return f"{_digits(seconds / size * 1e3)} {unit}"
    return f"{_digits(seconds)} s"


def _digits(x: float) -> str:
    return f"{x:.2g}" if abs(x) < 10 else f"{x:.0f}"
