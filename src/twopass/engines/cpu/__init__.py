"""The CPU engine: text layer, layout model and OCR, without a GPU."""
