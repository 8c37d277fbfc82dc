"""Tools for maintainers and operators: benchmarks, generated files, the sample document, pins."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
