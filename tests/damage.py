"""Random damage to the content of a file."""


def mutated(content, rng):
    """Return a file with some bytes flipped, cut off, taken out or put in."""
    at, n = rng.randrange(max(1, len(content))), rng.choice((1, 1, 1, 4, 64))
    kind = rng.choice(("flip", "flip", "digit", "cut", "delete", "insert", "fill"))
    if kind == "flip":
        return content[:at] + bytes(b ^ (1 << rng.randrange(8)) for b in content[at : at + n]) + content[at + n :]
    if kind == "digit":
        places = [i for i, b in enumerate(content) if chr(b).isdigit()] or [0]
        at = rng.choice(places)
        return content[:at] + str(rng.randrange(10)).encode() + content[at + 1 :]
    if kind == "cut":
        return content[:at]
    if kind == "delete":
        return content[:at] + content[at + n :]
    new = rng.choice((rng.randbytes(n), b"[" * 20_000, b"\xff\xfe", b"null", content[at : at + n]))
    return content[:at] + new + content[at + (0 if kind == "insert" else len(new)) :]
