"""What a job's last words say of its end, as people paste them: lines of PyTorch's watchdog, dumps of NCCL's RAS, out of memory."""
