"""Tables of a page: which regions are tables, their grid lines, and their cells."""
