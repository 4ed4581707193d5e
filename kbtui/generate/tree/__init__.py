"""Reading a kernel file without running it: its kernels, launches, and where their values come from."""
