"""Answers with labelled boxes: their grammar, their elements, and the second readings of elements."""
