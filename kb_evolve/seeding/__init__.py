"""First candidates from elsewhere: other runs, folders of kernels, other tools' results, problems of the same kind."""
