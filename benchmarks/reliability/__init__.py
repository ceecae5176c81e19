"""Campaigns against the program's reliability: faults of machine and disk, damaged files, long processes."""
