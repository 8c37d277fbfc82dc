"""Run the `twopass` command with `python -m twopass.cli`."""

from twopass.cli.app import main

if __name__ == "__main__":
    main()
