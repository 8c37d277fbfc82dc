"""`twopass mcp`: documents for a language model's tools."""
