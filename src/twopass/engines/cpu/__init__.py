"""The engine of any laptop: text layer, layout model and OCR, without a GPU."""
