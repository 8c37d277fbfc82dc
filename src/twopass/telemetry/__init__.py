"""Logs, metrics, traces, progress and timings."""
