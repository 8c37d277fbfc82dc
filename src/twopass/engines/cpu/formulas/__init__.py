"""The LaTeX of displayed formulas, from the characters and rules of a page's text layer."""
