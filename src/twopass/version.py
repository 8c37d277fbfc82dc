"""The version of the package; pyproject.toml takes it from here."""

VERSION = "0.2.0"
