"""The artefacts of a document, one module per format."""
