"""Options, declared once: a field says its type, unit, range, choices and meaning, and all else follows from that.

`kinds` is what a value may be, `declared` makes dataclasses of options, `reading` fills them from tables of a file, and
`writing` turns them into templates, tables and JSON schemas. `cli/options.py` makes command-line options of them.
"""
