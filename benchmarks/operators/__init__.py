"""Operators as workloads: what tensorc, NumPy, torch and JAX each call to compute them."""
