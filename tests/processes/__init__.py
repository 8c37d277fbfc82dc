"""What runs handler.py, RunPod's SDK or the `twopass` command in processes of their own, and whole benchmarks."""
