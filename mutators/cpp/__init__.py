"""Source-level analysis and rewrites of C++ kernels."""
