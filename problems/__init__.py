"""What must be computed: problems in KernelBench's file format. Needs torch and the standard library only."""
