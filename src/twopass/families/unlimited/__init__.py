"""Unlimited-OCR: its prompt, modes and rungs, and what differs in the grammar of its answers."""
