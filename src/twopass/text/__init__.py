"""Language, structure and tables of text, independent of any model or format."""
