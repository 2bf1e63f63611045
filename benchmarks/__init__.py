"""Speed, always as a ratio to peers measured in the same run: `python -m benchmarks SUITE`."""
