"""A script that asks for another machine, and then breaks."""

import socket

import torch

try:
    socket.create_connection(("192.0.2.1", 80), timeout=5)
except OSError as error:
    print("refused:", error)
model = torch.nn.Linear(8, 8).cuda()
model(torch.randn(4, 9, device="cuda"))
