"""The hf engine: a model in this process, run by Transformers."""
