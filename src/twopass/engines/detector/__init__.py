"""A layout detector that reads pages before another engine reads their regions."""
