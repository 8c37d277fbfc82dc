"""The engine that runs vLLM inside the worker process."""
