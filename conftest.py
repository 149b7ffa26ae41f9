"""The table of contents: which plugins make `pytest suite` a benchmark."""

pytest_plugins = ("fixtures.plugin", "fixtures.conformance_plugin", "reports.plugin")
