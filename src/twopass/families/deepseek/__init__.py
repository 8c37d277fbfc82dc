"""DeepSeek-OCR: prompts for both passes and the grammar of its answers."""
