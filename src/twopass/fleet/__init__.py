"""Many documents in, jobs of one endpoint out: what scripts/submit.py is made of."""
