"""`pytest --cpu 20`: where the suite spends its CPU seconds, those of the processes it starts and awaits included."""

import os
from collections import Counter

import pytest


def spent() -> float:
    """CPU seconds of this process and of its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class CpuSeconds:
    """Every report carries the CPU seconds since the one before it; the last lines name the dearest files and tests."""

    def __init__(self, shown: int):
        self.shown = shown
        self.mark = spent()

    def pytest_runtest_logstart(self):
        self.mark = spent()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report):
        """Measured where the test ran: in a worker this comes before the report is sent."""
        if not hasattr(report, "cpu"):
            now = spent()
            report.cpu, self.mark = now - self.mark, now

    def pytest_terminal_summary(self, terminalreporter):
        files, tests = Counter(), Counter()
        for report in (r for reports in terminalreporter.stats.values() for r in reports if hasattr(r, "cpu")):
            files[report.location[0]] += report.cpu
            tests[report.nodeid] += report.cpu
        for title, counter in (("file", files), ("test", tests)):
            terminalreporter.section(f"CPU seconds by {title}, {counter.total():.0f} in all")
            for name, seconds in counter.most_common(self.shown):
                terminalreporter.write_line(f"{seconds:8.1f}  {name}")
