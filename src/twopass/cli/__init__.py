"""The `twopass` command."""
