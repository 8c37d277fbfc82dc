"""Processes, tasks and limits of one worker: page workers, page slots, admission, shutdown."""
