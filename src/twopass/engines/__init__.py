"""The engines that answer prompts: CPU, vLLM, OpenAI-compatible servers, Transformers and recorded completions."""
