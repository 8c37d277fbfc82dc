"""Source files, rendered pages, their pixels and their text."""
