"""The steps of pipeline.py, one module each."""
