#include "values.hpp"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/graph_task.h>

#include <atomic>
#include <cmath>
#include <set>
#include <string_view>

namespace capture {
namespace {

std::atomic<bool> watched_was_written{false};

using at::Tensor;

constexpr int64_t kMostBytes = int64_t{8} << 20;  // of a storage whose true values are kept
constexpr int64_t kMostDrawnBytes = 1 << 10;      // of floats that are drawn at random or come from the host: weights, not scales

}  // namespace

Storage* storage_of(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || !tensor.device().is_cuda()) return nullptr;
  return static_cast<Storage*>(tensor.storage().data_ptr().get_context());
}

bool is_kept(const Tensor& tensor, int64_t bytes) { return !tensor.is_complex() && bytes <= kMostBytes; }

bool is_data(const Tensor& tensor, int64_t bytes) { return tensor.is_floating_point() && bytes > kMostDrawnBytes; }

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

void forget(const Tensor& tensor, int8_t rule) {
  if (auto* storage = storage_of(tensor)) {
    storage->values = Values::kUnknown;
    storage->twin.reset();
    storage->rule = rule;
  }
}

void note_written(const Tensor& tensor) {
  auto* storage = storage_of(tensor);
  if (storage != nullptr && storage->watched && torch::autograd::get_current_graph_task_id() < 0) watched_was_written = true;
}

void watch(const Tensor& tensor) {
  if (auto* storage = storage_of(tensor)) storage->watched = true;
}

bool take_watched() { return watched_was_written.exchange(false); }

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

namespace {

const std::set<std::string_view> kTrueByRule{"aten::isfinite", "aten::allclose", "aten::isclose"};
const std::set<std::string_view> kFalseByRule{"aten::isnan", "aten::isinf", "aten::isposinf", "aten::isneginf"};
const std::set<std::string_view> kKeepsTruth{"aten::all", "aten::any", "aten::max", "aten::amax", "aten::min", "aten::amin",
                                             "aten::sum", "aten::clone", "aten::logical_or", "aten::logical_and",
                                             "aten::bitwise_or", "aten::bitwise_and", "aten::cat", "aten::stack"};
const std::set<std::string_view> kTurnsTruth{"aten::logical_not", "aten::bitwise_not"};

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

}  // namespace

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

}  // namespace capture
