"""Optional parts of this package, from its metadata: what each needs, and which brings a package that is missing."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, metadata, requires

FOR_DEVELOPERS = ("all", "dev", "docs", "blackjax")
IMPORTED_AS = {"pyyaml": "yaml"}  # names of packages that differ from those of their modules by more than hyphens


class MissingPart(ModuleNotFoundError):
    """A package of an optional part is not installed; the message says what needs it, and what to install."""


@contextmanager
def require_extra(what: str, extra: str) -> Iterator[None]:
    """Name the optional part where an import fails because its package is missing.

    Example: `with require_extra("solver 'adam'", "solvers"): import optax`.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        raise MissingPart(f"{what} needs {package}: pip install 'shardfit[{extra}]'.", name=error.name) from None


def extras() -> list[str]:
    """Return the optional parts that users may want."""
    return [extra for extra in metadata("shardfit").get_all("Provides-Extra") or () if extra not in FOR_DEVELOPERS]


def needed(extra: str) -> dict[str, str]:
    """Return package → least version of what is asked for, always (extra "") or by an optional part."""
    found = {}
    for text in requires("shardfit") or ():
        requirement, _, marker = text.partition(";")
        named = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
        match = re.match(r"\s*([\w.-]+)[^>]*(?:>=\s*([\d.]+))?", requirement)
        if match is not None and match[1] != "shardfit" and (named[1] if named else "") == extra:
            found[match[1]] = match[2] or "0"
    return found


def modules_of(extra: str) -> set[str]:
    """Return the modules that the packages of an optional part are imported as."""
    return {IMPORTED_AS.get(name, name.replace("-", "_")) for name in needed(extra)}


def remedy(error: ModuleNotFoundError, part: str = "") -> str:
    """Return what to install where a missing module belongs to an optional part, else an empty text.

    part: the one that was wanted, where several bring the module.
    """
    module = (error.name or "").partition(".")[0]
    try:
        found = sorted(extra for extra in extras() if module in modules_of(extra))
    except PackageNotFoundError:  # a source tree that is not installed
        return ""
    return " or ".join(f"pip install 'shardfit[{extra}]'" for extra in ([part] if part in found else found))
