"""DeepSeek-OCR: prompts for both passes, modes and rungs."""
