"""Last words that schedulers, kernels, launchers and others write, and a part of what has to be said of each."""

from __future__ import annotations

OTHER_WORDS = [
    ("slurmstepd: error: *** JOB 1234 ON gpu-03 CANCELLED AT 2026-03-01T10:00:00 DUE TO TIME LIMIT ***", "limit of time was over"),
    ("slurmstepd: error: *** STEP 1234.0 ON gpu-03 CANCELLED AT 2026-03-01T10:00:00 DUE TO PREEMPTION ***", "higher priority"),
    ("slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-03-01T10:00:00 DUE TO NODE FAILURE, SEE LOG ***", "node f"),
    ("slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-03-01T10:00:00 ***", "by scancel"),
    ("slurmstepd: error: Detected 2 oom_kill events in StepId=77.0. Some of the step tasks have been OOM Killed.", "raise --mem"),
    ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=77.batch. Some of your processes may have been killed", "--mem"),
    ("srun: error: n17: task 3: Exited with exit code 137", "on n17, task 3 of Slurm ended: Exited with exit code 137"),
    ("srun: error: n17: tasks 0-7: Killed", "task 0-7 of Slurm ended: Killed"),
    ("srun: error: Node failure on n4", "the node n4 failed"),
    ("salloc: error: Node failure on n4", "the node n4 failed"),
    ("Warning  SystemOOM  3m  kubelet  System OOM encountered, victim process: python, pid: 12", "killed python (pid 12)"),
    ("socketProgressOpt: Call to recv from 172.16.0.3<33759> failed : Connection reset by peer", "172.16.0.3<33759> failed: Conn"),
    (
        "[12.3] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,mems_allowed=0-1,oom_memcg=/slurm/uid_1/job_7,"
        "task_memcg=/slurm/uid_1/job_7/step_0,task=python,pid=4242,uid=1000",
        "the memory of its cgroup /slurm/uid_1/job_7 ran out, not the machine's",
    ),
    (
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/,task=python,pid=7,uid=0",
        "killed python (pid 7): the machine's memory ran out",
    ),
    ("Memory cgroup out of memory: Killed process 4242 (python) total-vm:1kB", "killed python (pid 4242)"),
    ("kernel: watchdog: BUG: soft lockup - CPU#17 stuck for 23s! [python:991]", "core 17 was stuck"),
    ("INFO: task python:4211 blocked for more than 122 seconds.", "pid 4211) waited more than 122 s inside the kernel"),
    ("mlx5_core 0000:1a:00.0 ens1f0np0: Link down", "InfiniBand went down"),
    ("mce: [Hardware Error]: Machine check events logged", "hardware error"),
    ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0", "host memory"),
    ("NVRM: GPU 0000:8b:00.0: RmInitAdapter failed! (0x62:0x0:2548)", "could not start a GPU"),
    ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error", "SXid 12028"),
    ("NVRM: Xid (PCI:0000:19:00): 149, pid=7, NETIR_LINK_EVT Fatal", "links (NETIR)"),
    ("pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0", "PCIe device at 0000:3b:00.0"),
    ("nfs: server store-1 not responding, still trying", "NFS server store-1"),
    ("    Last State:     Terminated\n      Reason:       OOMKilled", "resources.limits.memory"),
    ("The node was low on resource: ephemeral-storage. Container trainer was using 90Gi", "ran out of ephemeral-storage"),
    ("(raylet) A worker died or was killed while executing a task by an unexpected system error.", "worker of Ray was killed"),
    ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", "ran low on memory"),
    ("The actor died because its node has died. Node Id: ab", "its node did"),
    ("torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 7/8 clients joined.", "only 7 of 8"),
    (
        "DistStoreError: Timed out waiting on barrier on rank 0, for key prefix: torchelastic.store/ (world_size=4, "
        "missing_ranks=[2, 3], timeout=300)",
        "agents (one a node) of 2, 3",
    ),
    (
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got signal: 15\n"
        "[W] Received 15 death signal, shutting down workers",
        "asked to end (15)",
    ),
    (
        "E0301 torch/distributed/elastic/multiprocessing/api.py] failed (exitcode: -9) local_rank: 3 (pid: 88) of binary: python",
        "local rank 3 (pid 88) ended with exit code -9",
    ),
    ("=>> PBS: job killed: walltime 3600 exceeded limit 3600", "PBS ended the job"),
    ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "LSF ended the job"),
    ("NVRM: Xid (0000:03:00): 137, pid=7, name=train, FLA", "of train, pid 7): an illegal access over NVLink"),
    (
        "NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
        "by: Drain and Reset",
    ),
    (
        "[9.1] NVRM: The NVIDIA GPU 0000:b3:00.0\n  NVRM: (PCI ID: 10de:2330) installed in this system has\n"
        "  NVRM: fallen off the bus and is not responding to commands.",
        "at PCI 0000:b3:00.0 has fallen off the bus",
    ),
    ("Unable to determine the device handle for GPU 0000:03:00.0: GPU is lost.", "at PCI 0000:03:00.0 is lost"),
    ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "20034 (Fatal, Link 30)"),
    ("amdgpu 0000:dd:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!", "AMD GPU at PCI 0000:dd:00.0"),
    ("Memory cgroup out of memory: Kill process 42 (python) score 1 or sacrifice child", "killed python (pid 42)"),
    ("Kernel panic - not syncing: Fatal Machine check", "stopped the machine: Fatal Machine check"),
    ("md/raid0md0: Disk failure on nvme1n1p1 detected, failing array.", "disk nvme1n1p1 of a raid0"),
    ("EXT4-fs (md0): Remounting filesystem read-only", "on md0 became read-only"),
    ("Buffer I/O error on dev dm-0, logical block 7, lost async page write", "the disk dm-0 fail"),
    ("bond0: (slave eth2): link status definitely down, disabling slave", "bond0 went down: eth2"),
    ("mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature", "module 0 of a NIC"),
    (
        "pci 0000:04:00.0: 252.048 Gb/s available PCIe bandwidth, limited by 16.0 GT/s PCIe x16 link at 0000:01:00.0",
        "gets 252.048 Gb/s",
    ),
    ("python[88]: segfault at 7f79 ip 00007f sp 00007e error 4 in libnccl.so.2[7f7c+d3]", "fault in libnccl.so.2, in native"),
    ("train.sh: line 28:  8156 Killed                  python3 main.py", "killed (SIGKILL)"),
    ("[gpu01:12345] Signal: Segmentation fault (11)", "process 12345 on gpu01 ended: Segmentation fault"),
    ("  NCCL WARN_: x\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000\nExit Code:    139", "exit code 139"),
]  # fmt: skip

OF_A_RANK = [
    ("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 21474836480 bytes.", "memory for 20 GiB"),
    ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.", "--gpu-memory-utilization"),
    ("RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error.", "/dev/shm is full"),
    (
        'Traceback (most recent call last):\n  File "a/save.py", line 8, in save\n    raise\nValueError: no such key',
        "raised ValueError: no such key (save.py, line 8)",
    ),
]
"""Words for which the rank before them is to blame."""

MORE_WORDS = [
    *OF_A_RANK,
    ("[Fri Apr  5 21:29:39 2024] NVRM: Xid (PCI:0000:a1:00): 79, pid=12345, GPU is lost.", "fallen off the bus"),
    (
        "Not all ranks joining collective, sequence number: 7\ninternal record id: 9\ngroup info: 0:default_pg\n"
        "collective: nccl:all_reduce\nmissing ranks: {2}",
        "not in all_reduce 7 of default_pg",
    ),
    ("=== Straggler Report at Step 20 ===\n\nDetected Stragglers: [3, 11]", "ranks 3 and 11: stragglers"),
    (
        "INFO:megatron.core.utils:[2024-03-14 23:07:56] | MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: 3868.20ms/0 | "
        "MnEtpt/Rnk: 256.02TF/0 | MxEtpt/Rnk: 297.32TF/8",
        "256.02 TFLOP/s at the slowest rank",
    ),
    ("DETECTED RELATIVE STRAGGLER GPU RANK=6 NODE=n-12", "straggler by NVRx"),
    (
        "ERROR [core.py:1165] RuntimeError: Worker failed with error 'NCCL error: unhandled cuda error'",
        "failed with NCCL error: unhandled cuda error",
    ),
    (
        "train.py FAILED\nFailures:\n  <NO_OTHER_FAILURES>\nRoot Cause (first observed failure):\n[0]:\n"
        "  time      : 2024-01-01_10:00:01\n  host      : node-1\n  rank      : 3 (local_rank: 3)\n  exitcode  : -9 (pid: 12345)\n"
        "  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID 12345",
        "failed first",
    ),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which "
        "1.50 GiB is free. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 5.00 GiB is reserved by PyTorch but "
        "unallocated.",
        "2",
    ),
]
