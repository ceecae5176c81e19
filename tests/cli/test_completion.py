"""What a shell is told to complete; in bash for real."""

import shutil
import subprocess
import sys

import pytest

from shardfit.cli import main
from shardfit.cli.completion import next_words


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([""], {"vlbi", "survey", "fit"}),
        (["vl"], {"vlbi"}),
        (["vlbi", "im"], {"image"}),
        (["vlbi", "image", "--pre"], {"--preset"}),
        (["vlbi", "image", "m87.uvfits", "--resume", ""], {"auto", "must", "never"}),
        (["--debug", "survey", "st"], {"status"}),
        (["completion", "b"], {"bash"}),
        (["init", ""], {"fit", "seismic"}),
        (["init", "survey", ""], set()),  # a file
        (["init", "survey", "--science", ""], {"vlbi"}),
        (["data", "get", "m87"], {"m87", "m87-days"}),
        (["demo", "--only", "xp"], {"xpcs", "xpcs-posterior"}),
        (["unknown", ""], set()),
        (["vlbi", "image", ""], set()),  # a file: the shell's own completion
    ],
)
def test_next_words(words, expected):
    found = set(next_words(words))
    assert "words" not in found
    assert expected <= found and (expected or not found)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_parse(capsys, shell):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "shardfit completion words" in script
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=script, text=True, check=False).returncode == 0


def test_bash_asks(tmp_path):
    if not shutil.which("bash"):
        pytest.skip("no bash here")
    (tmp_path / "shardfit").write_text(f'#!/bin/sh\nexec {sys.executable} -m shardfit "$@"\n')
    (tmp_path / "shardfit").chmod(0o755)
    script = f'PATH="{tmp_path}:$PATH"; eval "$(shardfit completion bash)"; '
    script += 'COMP_WORDS=(shardfit vlbi sim); COMP_CWORD=2; _shardfit; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["simulate"], done.stderr
