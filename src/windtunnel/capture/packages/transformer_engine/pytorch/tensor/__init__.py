"""Tensors of 8 bits: nothing here is one."""


class QuantizedTensor: ...
