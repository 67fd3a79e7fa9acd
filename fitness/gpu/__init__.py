"""The judge on NVIDIA GPUs: device memory shared by handle, windows on whole batches, see docs/judge.md."""
