"""The autotuner's package: a guest of tensorc that uses its public names."""
