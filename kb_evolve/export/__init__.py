"""What a run found, for other tools: kernels and evidence in their file layouts."""
