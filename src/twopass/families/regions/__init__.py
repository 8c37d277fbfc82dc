"""Models that read one region of a page at a time, behind a layout detector."""
