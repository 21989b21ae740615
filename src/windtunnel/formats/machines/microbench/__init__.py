"""Small benchmarks of links and memories: perftest, GPCNet, and the copies of CUDA's, ROCm's, superbench's and STREAM's tools."""
