"""The layout family: the answers of the CPU engine, which are JSON."""
