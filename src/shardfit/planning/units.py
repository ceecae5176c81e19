"""Numbers with units, for people."""


def bytes_text(n: float) -> str:
    """Return '1.2 GB'."""
    return _scaled(n, "B", 1e3, ("", "k", "M", "G", "T", "P"))


def count_text(n: float, unit: str = "") -> str:
    """Return '3.4 G' and the unit."""
    return _scaled(n, unit, 1e3, ("", "k", "M", "G", "T", "P"))


def seconds_text(seconds: float) -> str:
    """Return '3.4 ms'."""
    for size, unit in ((1e-6, "ns"), (1e-3, "µs"), (1.0, "ms")):
        if seconds < size:
            return f"{_digits(seconds / size * 1e3)} {unit}"
    return f"{_digits(seconds)} s"


def _scaled(n: float, unit: str, step: float, prefixes: tuple[str, ...]) -> str:
    for prefix in prefixes[:-1]:
        if abs(n) < 0.9995 * step:
            return f"{_digits(n)} {prefix}{unit}".rstrip()
        n /= step
    return f"{_digits(n)} {prefixes[-1]}{unit}"


def _digits(x: float) -> str:
    return f"{x:.2g}" if abs(x) < 10 else f"{x:.0f}"
