"""Reads documents on S3 into DocJSON and markdown, every page in two passes."""

__version__ = "0.1.0"
