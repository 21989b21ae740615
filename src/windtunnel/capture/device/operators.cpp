// Operators on the device: what they are is recorded, shapes are found on `meta`, values on the CPU where they are known and small.
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros.h>
#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/node.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "operators.hpp"

namespace capture {
namespace {

using at::Tensor;

constexpr int64_t kMostBytes = int64_t{8} << 20;  // of a storage whose true values are kept
constexpr int64_t kMostDrawnBytes = 1 << 10;      // of floats that are drawn at random or come from the host: weights, not scales

// ---- storages -----------------------------------------------------------------------------------------------------------------

Storage* storage_of(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || !tensor.device().is_cuda()) return nullptr;
  return static_cast<Storage*>(tensor.storage().data_ptr().get_context());
}

bool is_kept(const Tensor& tensor, int64_t bytes) { return !tensor.is_complex() && bytes <= kMostBytes; }

bool is_data(const Tensor& tensor, int64_t bytes) { return tensor.is_floating_point() && bytes > kMostDrawnBytes; }

// The tensor's true values on the CPU, which share its storage's twin; none where they are not known.
std::optional<Tensor> twin_of(const Tensor& tensor) {
  if (!tensor.device().is_cuda()) return tensor;
  auto options = at::TensorOptions().dtype(tensor.scalar_type()).device(at::kCPU);
  if (tensor.storage().nbytes() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  auto* storage = storage_of(tensor);
  if (storage == nullptr || storage->values == Values::kUnknown || !is_kept(tensor, storage->bytes)) return std::nullopt;
  if (!storage->twin) {
    storage->twin = at::zeros({storage->bytes}, at::TensorOptions().dtype(at::kByte)).storage().getWeakStorageImpl().lock();
    storage->values = Values::kKnown;
  }
  auto twin = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage->twin), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  twin.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  twin.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset());
  return twin;
}

void forget(const Tensor& tensor, int8_t rule = -1) {
  if (auto* storage = storage_of(tensor)) {
    storage->values = Values::kUnknown;
    storage->twin.reset();
    storage->rule = rule;
  }
}

// Writes true values; whoever covers the whole storage makes them known.
bool write_values(const Tensor& tensor, const Tensor& values) {
  auto* storage = storage_of(tensor);
  if (storage == nullptr) return true;
  if (storage->values == Values::kUnknown && tensor.nbytes() == static_cast<size_t>(storage->bytes)) {
    storage->values = Values::kFresh;
    storage->rule = -1;
  }
  auto twin = twin_of(tensor);
  if (!twin) {
    forget(tensor);
    return false;
  }
  twin->copy_(values);
  return true;
}

// ---- tensors without values ---------------------------------------------------------------------------------------------------

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device> device,
             std::optional<bool>, std::optional<at::MemoryFormat> format) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &device_allocator(), kKeys, at::dtype_or_default(dtype), format);
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                     std::optional<at::Device> device, std::optional<bool>) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, &device_allocator(), kKeys, at::dtype_or_default(dtype));
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

const Tensor& resize_(const Tensor& tensor, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  int64_t needed = (impl->numel() + impl->storage_offset()) * static_cast<int64_t>(impl->itemsize());
  if (static_cast<int64_t>(impl->unsafe_storage().nbytes()) < needed) {
    resize_bytes(impl->unsafe_storage().unsafeGetStorageImpl(), needed);
  }
  return tensor;
}

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

// ---- what is recorded ---------------------------------------------------------------------------------------------------------

void write(std::string& text, at::IntArrayRef extents) {
  text += '[';
  for (size_t i = 0; i < extents.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(extents[i]);
  }
  text += ']';
}

// A tensor as [dtype, extents, elements that lie in memory]: expanded extents are read once.
void write(std::string& text, const Tensor& tensor) {
  if (!tensor.defined()) {
    text += "null";
    return;
  }
  int64_t touched = 1;
  for (int64_t i = 0; i < tensor.dim(); ++i) touched *= tensor.stride(i) == 0 ? 1 : tensor.size(i);
  text += "{\"d\":\"";
  text += c10::toString(tensor.scalar_type());
  text += "\",\"s\":";
  write(text, tensor.sizes());
  if (touched != tensor.numel()) text += ",\"n\":" + std::to_string(touched);
  text += '}';
}

void write(std::string& text, const c10::IValue& value) {
  if (value.isTensor()) {
    write(text, value.toTensor());
  } else if (value.isInt()) {
    text += std::to_string(value.toInt());
  } else if (value.isBool()) {
    text += value.toBool() ? "true" : "false";
  } else if (value.isDouble()) {
    auto number = value.toDouble();
    text += std::isfinite(number) ? std::to_string(number) : "null";
  } else if (value.isList()) {
    text += '[';
    bool first = true;
    for (const auto& part : value.toListRef()) {
      if (!first) text += ',';
      first = false;
      write(text, part);
    }
    text += ']';
  } else {
    text += "null";
  }
}

int64_t sequence_now() {
  if (auto node = torch::autograd::get_current_node()) return static_cast<int64_t>(node->sequence_nr());
  auto next = static_cast<int64_t>(at::sequence_number::peek());
  return next - 1;
}

void add_operator(const std::string& name, const std::string& signature, bool known) {
  auto& log = the_log();
  if (!log.on || is_quiet()) return;
  Entry entry;
  entry.kind = Kind::kOperator;
  entry.name = log.number_of(name);
  entry.signature = log.number_of(signature);
  entry.stream = static_cast<int32_t>(current_stream());
  entry.sequence = sequence_now();
  entry.flag = known;
  log.add(entry);
}

void add_read(const std::string& what) {
  auto& log = the_log();
  if (!log.on) return;
  Entry entry;
  entry.kind = Kind::kRead;
  entry.stream = static_cast<int32_t>(current_stream());
  entry.signature = log.number_of(what + "|" + site_of_call());
  log.add(entry);
}

// ---- rules for values that would need the GPU ---------------------------------------------------------------------------------

const std::set<std::string_view> kTrueByRule{"aten::isfinite", "aten::allclose", "aten::isclose"};
const std::set<std::string_view> kFalseByRule{"aten::isnan", "aten::isinf", "aten::isposinf", "aten::isneginf"};
const std::set<std::string_view> kKeepsTruth{"aten::all", "aten::any", "aten::max", "aten::amax", "aten::min", "aten::amin",
                                             "aten::sum", "aten::clone", "aten::logical_or", "aten::logical_and",
                                             "aten::bitwise_or", "aten::bitwise_and", "aten::cat", "aten::stack"};
const std::set<std::string_view> kTurnsTruth{"aten::logical_not", "aten::bitwise_not"};
const std::set<std::string_view> kWritesNoValue{"aten::_amp_foreach_non_finite_check_and_unscale_"};

int8_t rule_of(std::string_view name, const std::vector<c10::IValue>& arguments) {
  if (kTrueByRule.count(name)) return 1;
  if (kFalseByRule.count(name)) return 0;
  if (name == "aten::eq" || name == "aten::ne") {  // NaN and infinity by hand: x != x, x == inf
    const auto& other = arguments[1];
    bool itself = other.isTensor() && other.toTensor().is_same(arguments[0].toTensor());
    bool infinite = other.isDouble() && std::isinf(other.toDouble());
    if (itself || infinite) return static_cast<int8_t>(itself == (name == "aten::eq"));
  }
  bool keeps = kKeepsTruth.count(name), turns = kTurnsTruth.count(name);
  if (!keeps && !turns) return -1;
  for (const auto& argument : arguments) {
    if (!argument.isTensor()) continue;
    auto* storage = storage_of(argument.toTensor());
    if (storage == nullptr || storage->rule < 0) return -1;
    return turns ? static_cast<int8_t>(1 - storage->rule) : storage->rule;
  }
  return -1;
}

// Which output of an operator holds indices of unknown values; they are chosen evenly, in turn.
int place_of_indices(std::string_view name) {
  if (name == "aten::topk" || name == "aten::sort" || name == "aten::max" || name == "aten::min" || name == "aten::kthvalue") return 1;
  if (name == "aten::argmax" || name == "aten::argmin" || name == "aten::multinomial" || name == "aten::argsort") return 0;
  return -1;
}

// Even choice along `dim` of `extent` values: the j-th of row r is (r · k + j) mod extent.
void choose_evenly(const Tensor& indices, int64_t dim, int64_t extent) {
  if (indices.numel() == 0 || extent == 0 || !is_kept(indices, static_cast<int64_t>(indices.nbytes()))) return;
  auto places = at::empty(indices.sizes(), at::TensorOptions().dtype(at::kLong).device(at::kCPU));
  bool along = indices.dim() > 0 && dim < indices.dim();
  auto rows = along ? places.movedim(dim, -1).reshape({-1, indices.size(dim)}) : places.reshape({-1, 1});
  auto values = at::empty_like(rows);
  auto* value = values.data_ptr<int64_t>();
  for (int64_t i = 0; i < rows.numel(); ++i) value[i] = i % extent;
  if (along) {
    auto sizes = places.movedim(dim, -1).sizes().vec();
    places = values.reshape(sizes).movedim(-1, dim);
  } else {
    places = values.reshape(indices.sizes());
  }
  write_values(indices, places);
}

void apply_rules(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, const std::vector<Tensor>& made) {
  std::string_view name = op.schema().name();
  if (auto rule = rule_of(name, arguments); rule >= 0 && !made.empty()) {
    auto* storage = storage_of(made[0]);
    if (storage == nullptr) return;
    bool number = made[0].scalar_type() != at::kBool;
    if ((!number || rule == 0) && is_kept(made[0], storage->bytes)) {
      write_values(made[0], at::zeros({}, at::TensorOptions().dtype(made[0].scalar_type())).fill_(rule));
    } else {
      storage->rule = rule;
    }
    return;
  }
  int place = place_of_indices(name);
  if (place < 0 || place >= static_cast<int>(made.size()) || !arguments[0].isTensor()) return;
  const auto& from = arguments[0].toTensor();
  int64_t dim = from.dim() - 1;
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (op.schema().arguments()[i].name() == "dim" && arguments[i].isInt()) dim = arguments[i].toInt();
  }
  if (dim < 0) dim += from.dim();
  choose_evenly(made[place], dim, from.dim() > 0 ? from.size(dim) : 1);
}

// ---- the kernel of every operator ---------------------------------------------------------------------------------------------

Tensor to_meta(const Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta() || (tensor.device().is_cpu() && tensor.dim() == 0)) return tensor;
  return at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
}

template <typename Change>
bool change_tensors(c10::IValue& value, const Change& change) {
  if (value.isTensor()) {
    if (!value.toTensor().defined()) return true;
    auto changed = change(value.toTensor());
    if (changed) value = *changed;
    return changed.has_value();
  }
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) {
      auto changed = change(tensor);
      if (!changed) return false;
      list.push_back(*changed);
    }
    value = list;
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (std::optional<Tensor> tensor : value.toOptionalTensorList()) {
      if (!tensor || !tensor->defined()) {
        list.push_back(tensor);
        continue;
      }
      auto changed = change(*tensor);
      if (!changed) return false;
      list.push_back(*changed);
    }
    value = list;
  } else if (value.isGenerator()) {
    value = c10::IValue();
  }
  return true;
}

std::vector<Tensor> tensors_in(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  return {};
}

bool is_written(const c10::Argument& argument) {
  const auto* alias = argument.alias_info();
  if (alias == nullptr) return false;
  const auto& parts = alias->containedTypes();  // of a list, whose tensors are written
  return alias->isWrite() || std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part.isWrite(); });
}

const std::set<std::string_view> kDraws{"aten::normal_",    "aten::uniform_", "aten::exponential_", "aten::cauchy_",
                                        "aten::log_normal_", "aten::bernoulli_", "aten::native_dropout"};

bool compute_on_twins(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, std::vector<c10::IValue>& results) {
  if (kDraws.count(op.schema().name()) && arguments[0].isTensor()) {
    const auto& tensor = arguments[0].toTensor();
    if (is_data(tensor, static_cast<int64_t>(tensor.nbytes()))) return false;
  }
  std::vector<c10::IValue> stack;
  for (auto value : arguments) {
    if (!change_tensors(value, twin_of)) return false;
    if (value.isDevice()) value = c10::Device(c10::kCPU);
    stack.push_back(std::move(value));
  }
  try {
    op.callBoxed(&stack);
  } catch (const std::exception&) {
    return false;  // no such kernel on a CPU; the shapes are found on `meta`, which raises what is wrong with the arguments
  }
  results = std::move(stack);
  return true;
}

// How many elements of a mask are true: all of them by rule, where it is not known.
int64_t count_true(const Tensor& mask, const Tensor* beside = nullptr) {
  auto known = twin_of(mask);
  auto sizes = beside == nullptr ? mask.sizes().vec() : at::infer_size(mask.sizes(), beside->sizes());
  if (known) return known->expand(sizes).ne(0).sum().item<int64_t>();
  add_read("a mask takes all");
  return c10::multiply_integers(sizes);
}

// Masks as indices become as many places as they have true elements.
c10::List<std::optional<Tensor>> places_of(const c10::IValue& indices) {
  c10::List<std::optional<Tensor>> places;
  for (std::optional<Tensor> index : indices.toOptionalTensorList()) {
    if (index && index->defined() && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte)) {
      auto count = count_true(*index);
      for (int64_t dim = 0; dim < index->dim(); ++dim) places.push_back(at::detail::empty_meta({count}, at::kLong));
    } else {
      places.push_back(index && index->defined() ? std::optional<Tensor>(to_meta(*index)) : std::nullopt);
    }
  }
  return places;
}

// Operators of which PyTorch has no shapes on `meta`, since they depend on values or have a kernel on CUDA alone.
bool shapes_by_hand(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, std::vector<c10::IValue>& results) {
  const auto& name = op.schema().name();
  auto like = [](const Tensor& tensor) { return to_meta(tensor); };
  if (name == "aten::_fused_rms_norm") {
    const auto& input = arguments[0].toTensor();
    auto size = input.sizes().vec();
    for (size_t i = size.size() - arguments[1].toIntVector().size(); i < size.size(); ++i) size[i] = 1;
    results = {like(input), at::detail::empty_meta(size, at::kFloat)};
    return true;
  }
  if (name == "aten::masked_select") {
    auto count = count_true(arguments[1].toTensor(), &arguments[0].toTensor());
    results = {at::detail::empty_meta({count}, arguments[0].toTensor().scalar_type())};
    return true;
  }
  if (name == "aten::nonzero") {
    const auto& mask = arguments[0].toTensor();
    results = {at::detail::empty_meta({count_true(mask), mask.dim()}, at::kLong)};
    return true;
  }
  if (name == "aten::index" && op.schema().overload_name() == "Tensor") {
    results = {to_meta(arguments[0].toTensor()), places_of(arguments[1])};
    op.callBoxed(&results);
    return true;
  }
  if (name == "aten::_fused_rms_norm_backward") {
    auto weight = arguments[4].isTensor() ? like(arguments[4].toTensor()) : Tensor();
    results = {like(arguments[1].toTensor()), weight};
    return true;
  }
  return false;
}

// An operator in place keeps its tensors' shapes: nothing needs to be found out.
bool is_in_place(const c10::FunctionSchema& schema) {
  const auto& name = schema.name();
  if (name.back() != '_' || !is_written(schema.arguments()[0])) return false;
  for (const auto& returned : schema.returns()) {
    if (!is_written(returned)) return false;
  }
  return true;
}

std::string explain(const c10::OperatorHandle& op, const std::string& what) {
  auto text = what.substr(0, what.find("\nException raised from"));
  return text + "\n(capture: " + op.schema().name() + ", whose result would need values of the device, at " + site_of_call() + ")";
}

void run_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Away away;
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size(), base = stack->size() - count;
  std::vector<c10::IValue> arguments(stack->begin() + static_cast<int64_t>(base), stack->end()), results;
  std::string signature = "[";
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) signature += ',';
    write(signature, arguments[i]);
  }
  bool known = false;
  {
    Away quiet(true);
    at::AutoDispatchBelowADInplaceOrView below;
    known = compute_on_twins(op, arguments, results);
    if (!known && is_in_place(schema)) {
      for (const auto& returned : schema.returns()) {
        for (size_t j = 0; j < count; ++j) {
          const auto& argument = schema.arguments()[j];
          if (is_written(argument) && argument.alias_info()->beforeSets() == returned.alias_info()->beforeSets()) {
            results.push_back(arguments[j]);
            break;
          }
        }
      }
    } else if (!known && !shapes_by_hand(op, arguments, results)) {
      for (auto value : arguments) {
        change_tensors(value, [](const Tensor& tensor) { return std::optional<Tensor>(to_meta(tensor)); });
        if (value.isDevice()) value = c10::Device(c10::kMeta);
        results.push_back(std::move(value));
      }
      try {
        op.callBoxed(&results);
      } catch (const c10::Error& error) {
        throw std::runtime_error(explain(op, error.what()));
      }
    }
  }
  std::vector<Tensor> made;
  auto wrap = [&](const Tensor& found) {
    if (!found.defined() || (!known && !found.is_meta())) return found;
    auto tensor = empty_strided(found.sizes(), found.strides(), found.scalar_type(), {}, {}, {});
    if (known) {
      Away quiet(true);
      write_values(tensor, found);
    } else {
      forget(tensor);
    }
    made.push_back(tensor);
    return tensor;
  };
  for (size_t i = 0; i < count; ++i) {
    if (!known && is_written(schema.arguments()[i]) && !kWritesNoValue.count(schema.name())) {
      for (const auto& tensor : tensors_in(arguments[i])) forget(tensor);
    }
  }
  for (size_t i = 0; i < results.size() && i < schema.returns().size(); ++i) {
    auto& value = results[i];
    const auto& returned = schema.returns()[i];
    if (is_written(returned)) {
      for (size_t j = 0; j < count; ++j) {
        if (!is_written(schema.arguments()[j]) ||
            schema.arguments()[j].alias_info()->beforeSets() != returned.alias_info()->beforeSets()) {
          continue;
        }
        if (value.isTensor() && arguments[j].isTensor()) {
          const auto& given = arguments[j].toTensor();
          const auto& found = value.toTensor();
          if (given.sizes() != found.sizes()) {
            resize_(given, found.sizes(), {});
            Away quiet(true);
            if (known) write_values(given, found);
          }
        }
        for (const auto& tensor : tensors_in(arguments[j])) made.push_back(tensor);
        value = arguments[j];
        break;
      }
    } else if (value.isTensor()) {
      value = wrap(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& tensor : value.toTensorVector()) list.push_back(wrap(tensor));
      value = list;
    }
  }
  if (!known) {
    Away quiet(true);
    at::AutoDispatchBelowADInplaceOrView below;
    apply_rules(op, arguments, made);
  }
  signature += "]>[";
  for (size_t i = 0; i < results.size(); ++i) {
    if (i > 0) signature += ',';
    write(signature, results[i]);
  }
  signature += ']';
  const auto& overload = schema.overload_name();
  add_operator(overload.empty() ? schema.name() : schema.name() + "." + overload, signature, known);
  stack->erase(stack->begin() + static_cast<int64_t>(base), stack->end());
  for (auto& value : results) stack->push_back(std::move(value));
}

// ---- values between host and device -------------------------------------------------------------------------------------------

double answer(const Tensor& tensor) {
  auto* storage = storage_of(tensor);
  if (tensor.scalar_type() == at::kBool) return storage != nullptr && storage->rule > 0 ? 1.0 : 0.0;
  if (tensor.scalar_type() == at::kByte) return 0.0;  // DeepSpeed's mark of an overflow
  return 1.0;
}

std::string rule_text(const Tensor& tensor) {
  std::string text = std::string(c10::toString(tensor.scalar_type())) + " ";
  return text + (tensor.scalar_type() == at::kBool ? (answer(tensor) > 0 ? "is true" : "is false")
                                                    : (answer(tensor) > 0 ? "is 1" : "is 0"));
}

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

// Which fused attention PyTorch takes on a data-centre GPU: FlashAttention without a mask in 16 bits, else the memory-efficient one.
int64_t choose_attention(const Tensor& query, const Tensor&, const Tensor&, const std::optional<Tensor>& mask, double, bool,
                         std::optional<double>, bool) {
  bool half = query.scalar_type() == at::kHalf || query.scalar_type() == at::kBFloat16;
  return static_cast<int64_t>(!mask && half && query.size(-1) <= 256 ? at::SDPBackend::flash_attention
                                                                     : at::SDPBackend::efficient_attention);
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
TORCH_LIBRARY_IMPL(_, CUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_operator>()); }

}  // namespace

void register_operators(const std::vector<std::string>& names) {
  static std::vector<std::unique_ptr<torch::Library>> kept;
  kept.push_back(std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__));
  for (const auto& name : names) kept.back()->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_operator>());
}

void resize_storage(c10::Storage storage, int64_t bytes) { resize_bytes(storage.unsafeGetStorageImpl(), bytes); }

}  // namespace capture
