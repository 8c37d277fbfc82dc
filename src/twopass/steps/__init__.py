"""The steps of pipeline.py, one module each, and what they share."""
