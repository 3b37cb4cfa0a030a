"""Says aloud what is skipped, and gives each test a cache of its own."""

import pytest


@pytest.fixture
def name(request):
    """The name of a cache that no other test uses."""
    return request.node.nodeid


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.stats.get("skipped", []):
        terminalreporter.write_line(f"skipped: {report.nodeid}: {report.longrepr[2]}")
