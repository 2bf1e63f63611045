"""Random tensor programs, built and compared with what they mean: `python -m tests.fuzz`."""
