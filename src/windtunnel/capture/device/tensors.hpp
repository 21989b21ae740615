// Tensors of the device: made, resized, and copied to and from the host.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace capture {

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pinned);
const at::Tensor& resize_(const at::Tensor& tensor, at::IntArrayRef size, std::optional<at::MemoryFormat> format);
void resize_storage(c10::Storage storage, int64_t bytes);

}  // namespace capture
