"""What scripts/try_endpoint.py does: ten jobs, their checks, figures, and the removal of what they wrote."""
