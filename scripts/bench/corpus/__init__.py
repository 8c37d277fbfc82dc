"""Compare document readers: machine checks, words and order, and processor time."""

from scripts.bench.corpus.command import main

__all__ = ["main"]
