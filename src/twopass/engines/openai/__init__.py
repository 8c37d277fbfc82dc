"""The engine that sends prompts to an OpenAI-compatible server."""
