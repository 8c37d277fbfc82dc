"""Artefacts: one writer per format."""
