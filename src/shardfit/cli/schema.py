"""`shardfit schema`: what a configuration may hold, as JSON schema for editors and programs."""

import argparse
import json
from collections.abc import Sequence
from importlib import import_module

from shardfit.cli import options
from shardfit.cli.commands import completes
from shardfit.cli.outcome import record_output
from shardfit.core.errors import suggestion
from shardfit.options.declared import Options
from shardfit.sciences import installed

OWN = {"fit": "shardfit.cli.problems.config:Config", "survey": "shardfit.cli.surveys.config:Config"}
EXAMPLES = ("shardfit schema xpcs > xpcs.schema.json     # for an editor that completes and checks TOML",)


def add_arguments(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add which configuration."""
    kind = parser.add_argument("kind", metavar="KIND", help=f"one of: {', '.join(homes())}")
    completes(kind, homes())
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the schema."""
    from shardfit.options.writing import json_schema

    schema = json_schema(configuration(args.kind), f"shardfit {args.kind}")
    if not record_output(args, schema=schema):
        print(json.dumps(schema, indent=1, ensure_ascii=False))
    return 0


def homes() -> dict[str, str]:
    """Return kind of configuration → 'module:class' of its options; a science's command module names it as CONFIG."""
    own = {each.name: each.science.module("commands") for each in installed() if each.science and each.science.commands}
    return OWN | {name: module.CONFIG for name, module in own.items() if hasattr(module, "CONFIG")}


def configuration(kind: str) -> type[Options]:
    """Return the options of a kind of configuration."""
    if kind not in homes():
        raise ValueError(f"schema knows no {kind!r}.{suggestion(kind, homes())}")
    module, _, name = homes()[kind].partition(":")
    return getattr(import_module(module), name)
