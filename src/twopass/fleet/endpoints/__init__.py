"""Endpoints that campaigns send jobs to, one file each."""
