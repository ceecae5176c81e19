"""shardfit doctor: every check runs, and says what is wrong and what to do."""

import json

import pytest

from shardfit.cli import doctor, main
from shardfit.cli.doctor import machine, work
from shardfit.cli.doctor.finding import BAD, GOOD, NOTE, Finding
from shardfit.core import extras


def test_a_healthy_machine(capsys):
    assert main(["doctor", "--quick", "--json"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert found["versions"]["state"] == GOOD and "jax" in found["versions"]["text"]
    assert found["a small fit"]["state"] == GOOD and found["ledgers"]["state"] == GOOD


def test_a_broken_check_is_a_finding(capsys, monkeypatch):
    def no_devices():
        raise RuntimeError("no backend")

    monkeypatch.setattr(machine, "CHECKS", (no_devices,))
    monkeypatch.setattr(work, "CHECKS", (lambda: Finding("x", NOTE, "not so good", "do this"),))
    assert main(["doctor", "--quick"]) == 1
    out = capsys.readouterr().out
    assert "RuntimeError: no backend" in out and "do this" in out and "wrong: no devices" in out


def test_old_packages_are_named(monkeypatch):
    monkeypatch.setattr(extras, "requires", lambda _: ["jax>=99.0", "rich>=13", 'nowhere>=1; extra == "report"'])
    found = machine.versions()
    assert found.state == BAD and found.remedy == "pip install 'jax>=99.0'"
    assert "report lacks nowhere" in machine.extras().text


def test_optional_parts_may_be_missing_or_old(capsys, monkeypatch):
    def wave_kernel():
        raise ModuleNotFoundError("No module named 'jaxtyping'", name="jaxtyping")

    found = doctor._found(wave_kernel, "seismic")
    assert found == Finding(
        "wave kernel", NOTE, "not looked at: jaxtyping is not installed", "pip install 'shardfit[seismic]'"
    )
    assert " or " in doctor._found(wave_kernel).remedy
    monkeypatch.setattr(extras, "requires", lambda _: ['rich>=99; extra == "report"'])
    assert doctor._found(wave_kernel, "seismic").state == BAD  # no part brings it
    assert "report lacks rich>=99 (there is " in machine.extras().text


def test_little_disk(monkeypatch):
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: type("Use", (), {"free": 1000})())
    assert machine.disk().state == BAD


def test_programs_that_are_not_kept(monkeypatch):
    monkeypatch.setenv("SHARDFIT_COMPILE_CACHE", "off")
    assert work.kept_programs().state == NOTE


@pytest.mark.slow
@pytest.mark.processes
def test_everything():
    assert [one for one in doctor.look() if one.state == BAD] == []
