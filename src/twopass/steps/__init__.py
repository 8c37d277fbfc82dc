"""The steps of pipeline.py, in its order. Steps never import each other."""
