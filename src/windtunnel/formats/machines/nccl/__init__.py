"""NCCL's own files: tables of nccl-tests, debug lines, topology and graph XML; and OSU's tables, which measure the same."""
