"""`shardfit completion SHELL`: a script with which the shell completes commands, options and their values.

The script asks `shardfit completion words ...` at every press of the key, so a science that is installed later, or a
new option, is completed without a new script.
"""

import argparse
from collections.abc import Sequence

from shardfit.cli.commands import Parser, UsageError, add_commands, all_commands, completes

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
    completes(shell, SCRIPTS, hidden=(WORDS,))  # `words` is for the scripts only
    words = parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    words.required = False  # a message about a missing shell does not name it


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
        found = _values(last)
    elif begun.startswith("-"):
        found = [name for name in parser.options() if name not in left]
    else:
        found = [name for action in _open(parser, left) for name in _values(action)]
    return sorted(name for name in map(str, found) if name.startswith(begun))


def _values(action: argparse.Action) -> list[str]:
    """Return what an argument may be, where that is known."""
    return [str(each) for each in getattr(action, "completed", None) or action.choices or ()]


def _open(parser: Parser, words: Sequence[str]) -> list[argparse.Action]:
    """Return the argument without a name that comes next, after those that words have filled."""
    takers = {name for action in parser._actions if action.nargs != 0 for name in action.option_strings}
    filled = sum(not word.startswith("-") and (i == 0 or words[i - 1] not in takers) for i, word in enumerate(words))
    nameless = [action for action in parser._actions if not action.option_strings]
    return nameless[filled : filled + 1]


def _innermost(parser: Parser, words: Sequence[str]) -> tuple[Parser, list[str]]:
    """Return the parser of the command that words lead to, and the words after its name."""
    rest = list(words)
    while True:
        group = next((action for action in parser._actions if isinstance(action, argparse._SubParsersAction)), None)
        at = next((i for i, word in enumerate(rest) if not word.startswith("-")), None)
        if group is None or at is None or rest[at] not in group.choices:
            return parser, rest
        parser, rest = group.choices[rest[at]], rest[at + 1 :]
