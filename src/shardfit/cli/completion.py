"""`shardfit completion SHELL`: a script with which the shell completes commands, options and their values.

The script asks `shardfit completion words ...` at every press of the key, so a science that is installed later, or a
new option, is completed without a new script.
"""

import argparse
from collections.abc import Sequence

from shardfit.cli.commands import Parser, UsageError, add_commands, all_commands

BASH = """\
_shardfit() {
    local IFS=$'\\n'
    COMPREPLY=($(shardfit completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _shardfit shardfit
"""
ZSH = """\
#compdef shardfit
_shardfit() {
    local -a found
    found=("${(@f)$(shardfit completion words "${words[@]:1:$((CURRENT - 1))}" 2>/dev/null)}")
    [[ -n "${found[1]}" ]] && compadd -a found || _files
}
compdef _shardfit shardfit
"""
FISH = """\
function __shardfit_words
    set -l words (commandline -opc)[2..-1] (commandline -ct)
    shardfit completion words $words 2>/dev/null
end
complete -c shardfit -a '(__shardfit_words)'
"""
WORDS = "words"
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
EXAMPLES = (
    'eval "$(shardfit completion bash)"                     # in ~/.bashrc',
    'eval "$(shardfit completion zsh)"                      # in ~/.zshrc, after compinit',
    "shardfit completion fish > ~/.config/fish/completions/shardfit.fish",
)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the shell; what follows `words` is a command line, whatever it looks like."""
    shell = parser.add_argument(
        "shell", metavar="SHELL", choices=(*SCRIPTS, WORDS), help=f"one of: {', '.join(SCRIPTS)}"
    )
    shell.hidden = (WORDS,)  # type: ignore[attr-defined]  # for the scripts only
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Print the script, or the words that may follow."""
    if args.shell != WORDS:
        print(SCRIPTS[args.shell], end="")
        return 0
    for word in next_words(args.words or [""]):
        print(word)
    return 0


def next_words(words: Sequence[str]) -> list[str]:
    """Return what may stand in place of the last word, which has been begun or is empty."""
    *before, begun = words
    parser = Parser(prog="shardfit")
    try:
        add_commands(parser, all_commands(), before)
    except UsageError:
        return []
    parser, left = _innermost(parser, before)
    last = next((action for action in parser._actions if left and left[-1] in action.option_strings), None)
    if last is not None and last.nargs != 0:
        found = [str(choice) for choice in last.choices or ()]
    elif begun.startswith("-"):
        found = [name for name in parser.options() if name not in left]
    else:
        found = [name for action in parser._actions if not action.option_strings for name in action.choices or ()]
    return sorted(name for name in map(str, found) if name.startswith(begun))


def _innermost(parser: Parser, words: Sequence[str]) -> tuple[Parser, list[str]]:
    """Return the parser of the command that words lead to, and the words after its name."""
    rest = list(words)
    while True:
        group = next((action for action in parser._actions if isinstance(action, argparse._SubParsersAction)), None)
        at = next((i for i, word in enumerate(rest) if not word.startswith("-")), None)
        if group is None or at is None or rest[at] not in group.choices:
            return parser, rest
        parser, rest = group.choices[rest[at]], rest[at + 1 :]
