"""What GPUs did: sums over their kernels and copies, exact in integer nanoseconds."""
