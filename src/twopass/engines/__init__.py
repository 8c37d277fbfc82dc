"""What answers prompts: the CPU engine, vLLM, OpenAI-compatible servers, Transformers, recordings."""
