"""The reference engine: Transformers in this process."""
