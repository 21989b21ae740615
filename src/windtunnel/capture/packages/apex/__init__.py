"""Stands in for NVIDIA Apex where Megatron-Core is installed: shapes alone, one kernel where Apex has one."""

__version__ = "0.1"
