#include "tensors.hpp"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/native/Resize.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "operator_log.hpp"
#include "values.hpp"

namespace capture {
namespace {

using at::Tensor;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

}  // namespace

namespace {

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device> device,
             std::optional<bool>, std::optional<at::MemoryFormat> format) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &device_allocator(), kKeys, at::dtype_or_default(dtype), format);
}

void resize_bytes(c10::StorageImpl* storage, int64_t bytes) {
  auto* before = static_cast<Storage*>(storage->data_ptr().get_context());
  auto values = before == nullptr ? Values::kFresh : before->values;
  storage->set_data_ptr_noswap(device_allocator().allocate(bytes));
  storage->set_nbytes(bytes);
  if (auto* after = static_cast<Storage*>(storage->data_ptr().get_context()); after != nullptr && values != Values::kFresh) {
    after->values = Values::kUnknown;
  }
}

}  // namespace

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                     std::optional<at::Device> device, std::optional<bool>) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, &device_allocator(), kKeys, at::dtype_or_default(dtype));
}

const Tensor& resize_(const Tensor& tensor, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  int64_t needed = (impl->numel() + impl->storage_offset()) * static_cast<int64_t>(impl->itemsize());
  if (static_cast<int64_t>(impl->unsafe_storage().nbytes()) < needed) {
    resize_bytes(impl->unsafe_storage().unsafeGetStorageImpl(), needed);
  }
  return tensor;
}

void resize_storage(c10::Storage storage, int64_t bytes) { resize_bytes(storage.unsafeGetStorageImpl(), bytes); }

namespace {

Tensor& set_storage(Tensor& tensor, c10::Storage source, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset);
  if (stride.data() != nullptr) {
    impl->set_sizes_and_strides(size, stride);
  } else {
    impl->set_sizes_contiguous(size);
  }
  return tensor;
}

Tensor& set_whole_storage(Tensor& tensor, c10::Storage source) {
  int64_t count = static_cast<int64_t>(source.nbytes() / tensor.itemsize());
  return set_storage(tensor, std::move(source), 0, {count}, {});
}

Tensor& set_tensor(Tensor& tensor, const Tensor& source) {
  return set_storage(tensor, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

Tensor& set_nothing(Tensor& tensor) {
  return set_storage(tensor, c10::Storage(c10::Storage::use_byte_size_t(), 0, &device_allocator(), true), 0, {0}, {});
}

void record_stream(Tensor&, c10::Stream) {}

at::Scalar read_scalar(const Tensor& tensor) {
  Away away;
  auto twin = twin_of(tensor);
  add_read(twin ? "known" : rule_text(tensor));
  Away quiet(true);
  if (twin) return twin->item();
  auto value = answer(tensor);
  if (tensor.scalar_type() == at::kBool) return at::Scalar(value > 0);
  return tensor.is_floating_point() ? at::Scalar(value) : at::Scalar(static_cast<int64_t>(value));
}

Tensor& copy_(Tensor& to, const Tensor& from, bool non_blocking) {
  Away away;
  bool down = from.device().is_cuda() && !to.device().is_cuda(), up = !from.device().is_cuda() && to.device().is_cuda();
  auto known = twin_of(from);
  if (up || down) {
    Entry entry;
    entry.kind = Kind::kCopy;
    entry.stream = static_cast<int32_t>(current_stream());
    entry.b = static_cast<int64_t>(to.nbytes());
    entry.c = !non_blocking;
    entry.flag = up ? 1 : 2;
    the_log().add(entry);
  } else {
    std::string signature = "[";
    write(signature, to);
    signature += ',';
    write(signature, from);
    signature += "]>[";
    write(signature, to);
    add_operator("aten::copy_", signature + "]", known.has_value());
  }
  if (down && !known) add_read(rule_text(from));
  Away quiet(true);
  at::AutoDispatchBelowADInplaceOrView below;
  if (down) {
    if (known) {
      to.copy_(*known);
    } else if (to.numel() <= (1 << 20)) {
      to.fill_(answer(from));
    }
  } else if (auto* storage = storage_of(to)) {
    note_written(to);
    bool whole = to.nbytes() == static_cast<size_t>(storage->bytes);
    bool drawn = up && is_data(to, storage->bytes);
    if (known && !drawn && is_kept(to, storage->bytes) && (whole || storage->values != Values::kUnknown)) {
      write_values(to, *known);
    } else {
      auto* source = storage_of(from);
      forget(to, source != nullptr && !known ? source->rule : static_cast<int8_t>(-1));
    }
  }
  return to;
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  auto target = to;
  return copy_(target, from, non_blocking);
}

bool is_equal(const Tensor& left, const Tensor& right) {
  Away away;
  auto known = twin_of(left), other = twin_of(right);
  add_read(known && other ? "known" : "equal is true");
  Away quiet(true);
  return known && other ? at::equal(*known, *other) : left.sizes() == right.sizes();
}

bool is_pinned(const Tensor&, std::optional<at::Device>) { return false; }

// Whether the kernel of a fused attention takes these inputs on a data-centre GPU (PyTorch's cuda/sdp_utils.cpp, since 2.9).
bool takes(at::SDPBackend kernel, const Tensor& query, const Tensor& key, const Tensor& value, bool masked, bool causal) {
  const bool half = query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16;
  const auto width = query.size(-1), out = value.size(-1);
  if (width != key.size(-1)) return false;
  switch (kernel) {
    case at::SDPBackend::flash_attention:
      return half && !masked && width == out && width <= 256 && !(causal && query.size(-2) != key.size(-2));
    case at::SDPBackend::efficient_attention: {
      const int64_t together = half ? 8 : 4;
      return query.scalar_type() != at::kDouble && width % together == 0 && out % together == 0 && query.size(1) == key.size(1);
    }
    case at::SDPBackend::cudnn_attention:
      return half && width % 8 == 0 && out % 8 == 0 && ((width <= 128 && out <= 128) || (width == 192 && out == 128));
    default:
      return false;
  }
}

// The first attention that takes the inputs, in the script's order, of those that it has not turned off.
int64_t choose_attention(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask, double,
                         bool causal, std::optional<double>, bool) {
  auto& context = at::globalContext();
  for (auto kernel : context.sDPPriorityOrder()) {
    if (kernel == at::SDPBackend::math && context.userEnabledMathSDP()) return static_cast<int64_t>(kernel);
    bool on = (kernel == at::SDPBackend::flash_attention && context.userEnabledFlashSDP()) ||
              (kernel == at::SDPBackend::efficient_attention && context.userEnabledMemEfficientSDP()) ||
              (kernel == at::SDPBackend::cudnn_attention && context.userEnabledCuDNNSDP());
    if (on && takes(kernel, query, key, value, mask.has_value(), causal)) return static_cast<int64_t>(kernel);
  }
  return static_cast<int64_t>(at::SDPBackend::error);
}
[[maybe_unused]] const bool chosen = [] {
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose_attention);
  return true;
}();

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("unfold", at::native::unfold);
  library.impl("view_as_real", at::native::view_as_real);
  library.impl("view_as_complex", at::native::view_as_complex);
  library.impl("resize_", resize_);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("set_.source_Storage", set_whole_storage);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("set_", set_nothing);
  library.impl("record_stream", record_stream);
  library.impl("_local_scalar_dense", read_scalar);
  library.impl("copy_", copy_);
  library.impl("_copy_from", copy_from);
  library.impl("equal", is_equal);
  library.impl("is_pinned", is_pinned);
  library.impl("_fused_sdp_choice", choose_attention);
}

}  // namespace

}  // namespace capture
