"""Files that are generated from the code: `python -m scripts.generate` writes them, tests compare them."""
