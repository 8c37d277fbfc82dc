"""Loaders for other libraries, which are imported only here and are not installed with twopass."""
