"""Lines of models: what to ask them and how to read their answers."""
