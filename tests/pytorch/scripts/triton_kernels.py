"""Kernels as Triton's tutorials write them: a vector addition, and a softmax of rows that is tuned."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, x + y, mask=mask)


@triton.autotune(configs=[triton.Config({"ROWS": 4}, num_warps=8), triton.Config({"ROWS": 8})], key=["n_cols"])
@triton.heuristics({"WHOLE": lambda meta: meta["n_rows"] % meta["ROWS"] == 0})
@triton.jit
def softmax_kernel(output_ptr, input_ptr, n_rows, n_cols, ROWS: tl.constexpr, WHOLE: tl.constexpr):
    tl.store(output_ptr, tl.load(input_ptr))


def add(x, y):
    output = torch.empty_like(x)
    n_elements = output.numel()
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)  # noqa: E731
    add_kernel[grid](x, y, output, n_elements, BLOCK_SIZE=1024)
    return output


class Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return add(x, y)

    @staticmethod
    def backward(ctx, grad):
        return grad, grad


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4096, 512))

    def forward(self):
        total = Add.apply(self.weight, self.weight)
        shares = torch.empty_like(total)
        softmax_kernel[lambda meta: (triton.cdiv(4096, meta["ROWS"]), int(meta["WHOLE"]))](shares, total.detach(), 4096, 512)
        return total.square().mean() + shares.mean()


model = Model().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model().backward()
    optimizer.step()
    optimizer.zero_grad()
