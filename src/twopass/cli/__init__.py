"""The `twopass` command; `app` has the list of its subcommands."""
