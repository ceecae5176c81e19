"""Writers of uvfits files laid out as different packages do, of three point sources at every channel's frequency."""

import numpy as np

MAS = np.pi / 180 / 3600e3
COMPONENTS = ((1.0, 0.25, 0.25), (0.5, -6.25, 3.75), (0.3, 4.25, -7.25))  # Jy, mas to the east and to the north
SIGMA = 0.01  # Jy, of a channel's hands
LAYOUTS = ("aips", "difmap", "casa", "lower", "channels")
NAMES = ("BR", "FD", "KP", "LA")
XYZ = np.array([[0.0, 0, 0], [1.2e6, 0.5e6, -0.9e6], [0.4e6, 1.4e6, 0.3e6], [1.9e6, 1.1e6, 0.8e6]])
DAY = 58849  # MJD


def truth(u, v, hz, spectrum=0.0):
    """Visibilities, (n,) Jy; spectrum: spectral index, of 1 Jy at 4.85 GHz."""
    sky = sum(f * np.exp(2j * np.pi * MAS * (u * x + v * y)) for f, x, y in COMPONENTS)
    return sky * (hz / 4.85e9) ** spectrum


def layout(path, kind, *, band=0.1, noise=1.0, gains=0.0, spectrum=0.0, edit=None):
    """Write eight channels, 4.85 GHz (1 - band/2 to 1 + band/2): four IFs of two, eight of one, or four setups.

    edit: function of the rows' parameters and the antenna names, which it may change.
    """
    rng = np.random.default_rng(7)
    centres = 4.85e9 * (1 + band * (np.arange(8) / 7 - 0.5))
    step = centres[1] - centres[0]
    one, two = np.triu_indices(4, 1)
    hours = np.repeat(np.concatenate([4 + np.arange(6) / 120, 9 + np.arange(6) / 120]), len(one))
    one, two = np.tile(one, 12), np.tile(two, 12)
    turn = 2 * np.pi * hours / 24
    x, y, z = (XYZ[one] - XYZ[two]).T / 299792458.0
    light_s = np.sin(turn) * x + np.cos(turn) * y, 0.6 * (np.sin(turn) * y - np.cos(turn) * x) + 0.8 * z
    light_s = [w.astype(np.float32).astype(float) for w in light_s]
    vis = np.stack([truth(light_s[0] * hz, light_s[1] * hz, hz, spectrum) for hz in centres], 1)
    g = np.exp(gains * (rng.normal(size=(12, 4)) + 1j * rng.normal(size=(12, 4))))
    at = np.repeat(np.arange(12), 6)
    vis *= (g[at, one] * g[at, two].conj())[:, None]
    sigma = SIGMA * noise
    data = np.zeros((len(one), 8, 2, 3))  # RR, LL
    draws = sigma * rng.normal(size=(2, len(one), 8, 2))
    data[..., 0], data[..., 1] = vis.real[..., None] + draws[0], vis.imag[..., None] + draws[1]
    data[..., 2] = 1 / sigma**2
    rows = {"u": light_s[0], "v": light_s[1], "one": one + 1, "two": two + 1, "day": hours / 24}
    rows |= {"tint": np.full(len(one), 30.0), "setup": np.ones(len(one))}
    return _write(path, kind, rows, data, centres, step, edit)


def _write(path, kind, rows, data, centres, step, edit):
    from astropy.io import fits

    n = len(rows["u"])
    table = {"FRQSEL": [1], "IF FREQ": centres[::2] - centres[0], "CH WIDTH": np.full(4, step), "SIDEBAND": np.ones(4)}
    cube, first, at = data.reshape(n, 4, 2, 2, 3), centres[0], 1.0
    names = [name.ljust(8) for name in NAMES]
    u_name, date, tail = "UU---SIN", "DATE", ()
    if kind == "aips":
        names = [f"{name}\0A\x06EL" for name in NAMES]
        u_name, date, tail = "UU-L-SIN", "DATE", ("FREQSEL", "INTTIM", "CORR-ID")
    elif kind == "difmap":
        tail = ("INTTIM",)
    elif kind == "casa":  # every spectral window a setup of its own, one group for each
        u_name, tail = "UU", ("FREQSEL", "INTTIM")
        rows = {name: np.repeat(x, 4) for name, x in rows.items()}
        rows["setup"] = np.tile(np.arange(1, 5), n)
        cube = cube.reshape(4 * n, 1, 2, 2, 3)
        table = {"FRQSEL": np.arange(1, 5), "IF FREQ": (centres[::2] - centres[0])[:, None]}
        table |= {"CH WIDTH": np.full((4, 1), step), "SIDEBAND": np.ones((4, 1))}
    elif kind == "lower":  # channels count downwards, the reference pixel lies between two of them
        cube, first, at = cube[:, :, ::-1], centres[1] - step / 2, 1.5
        table["SIDEBAND"] = -np.ones(4)
    else:  # one IF of eight channels, its axis without a name
        cube = data.reshape(n, 1, 8, 2, 3)
        table = {"FRQSEL": [1], "IF FREQ": [[0.0]], "CH WIDTH": [[step]], "SIDEBAND": [[1]]}
        tail = ("INTTIM",)
    if edit is not None:
        rows["cube"] = cube
        edit(rows, names)
        cube = rows.pop("cube")
    n = len(rows["u"])
    params = {u_name: rows["u"], u_name.replace("U", "V"): rows["v"], u_name.replace("U", "W"): np.zeros(n)}
    params |= {"BASELINE": 256 * rows["one"] + rows["two"], date: np.zeros(n), "_DATE": rows["day"]}
    more = {"FREQSEL": rows["setup"], "INTTIM": rows["tint"], "CORR-ID": np.zeros(n)}
    params |= {name: more[name] for name in tail}
    labels = [name.strip("_") for name in params]
    groups = fits.GroupData(
        cube[:, None, None].astype(np.float32),
        bitpix=-32,
        parnames=labels,
        pardata=[np.asarray(x, np.float32) for x in params.values()],
    )
    hdu = fits.GroupsHDU(groups)
    axes = [("COMPLEX", 1, 1, 1), ("STOKES", -1, -1, 1), ("FREQ", first, step, at)]
    axes += [("" if kind == "channels" else "IF", 1, 1, 1), ("RA", 187.7, 1, 1), ("DEC", 12.4, 1, 1)]
    for i, (name, value, width, pixel) in enumerate(axes, start=2):
        cards = {f"CTYPE{i}": name, f"CRVAL{i}": float(value), f"CDELT{i}": float(width), f"CRPIX{i}": float(pixel)}
        hdu.header.update(cards)
    for i, name in enumerate(labels, start=1):
        hdu.header.update({f"PTYPE{i}": name, f"PSCAL{i}": 1.0, f"PZERO{i}": 0.0})
    hdu.header[f"PZERO{labels.index('DATE') + 1}"] = DAY + 2400000.5
    hdu.header["OBJECT"] = "J1230+12"
    tables = [_antennas(fits, names, first), _frequencies(fits, table)]
    fits.HDUList([hdu, *(tables if kind != "difmap" else tables[::-1])]).writeto(path, overwrite=True)
    raw = path.read_bytes()  # astropy writes no NUL within text
    path.write_bytes(raw.replace(b"@A#EL", b"\0A\x06EL"))
    return path


def _antennas(fits, names, first):
    k = len(names)
    text = [name.replace("\0A\x06EL", "@A#EL") for name in names]
    columns = [
        fits.Column("ANNAME", "8A", array=text),
        fits.Column("STABXYZ", "3D", array=XYZ[:k]),
        fits.Column("ORBPARM", "0D", array=np.zeros((k, 0))),
        fits.Column("NOSTA", "1J", array=np.arange(1, k + 1)),
        fits.Column("MNTSTA", "1J", array=np.zeros(k)),
        fits.Column("POLTYA", "1A", array=["R"] * k),
        fits.Column("POLTYB", "1A", array=["L"] * k),
    ]
    table = fits.BinTableHDU.from_columns(columns, name="AIPS AN")
    table.header.update({"FREQ": float(first), "RDATE": "2020-01-01", "ARRNAM": "VLBA", "EXTVER": 1})
    return table


def _frequencies(fits, table):
    offsets = np.atleast_2d(table["IF FREQ"])
    n = offsets.shape[1]
    columns = [
        fits.Column("FRQSEL", "1J", array=table["FRQSEL"]),
        fits.Column("IF FREQ", f"{n}D", array=offsets),
        fits.Column("CH WIDTH", f"{n}E", array=np.atleast_2d(table["CH WIDTH"])),
        fits.Column("TOTAL BANDWIDTH", f"{n}E", array=2 * np.atleast_2d(table["CH WIDTH"])),
        fits.Column("SIDEBAND", f"{n}J", array=np.atleast_2d(table["SIDEBAND"]).astype(int)),
    ]
    return fits.BinTableHDU.from_columns(columns, name="AIPS FQ")
