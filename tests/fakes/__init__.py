"""Fakes with behaviour: what the tests use in place of RunPod, S3 and a GPU."""
