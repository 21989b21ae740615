// Operators on the device: what they are is recorded, shapes are found on `meta`, values on the CPU where they are known and small.
#include "operators.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <torch/library.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "operator_log.hpp"
#include "tensors.hpp"
#include "values.hpp"

namespace capture {
namespace {

using at::Tensor;

const std::set<std::string_view> kWritesNoValue{"aten::_amp_foreach_non_finite_check_and_unscale_"};

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

enum class Called { kYes, kNo, kNotOfThisType };

// Calls an operator with the tensors that `change` finds on the CPU, if it finds all.
template <typename Change>
Called call_on_cpu(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, std::vector<c10::IValue>& results,
                   const Change& change) {
  std::vector<c10::IValue> stack;
  for (auto value : arguments) {
    if (!change_tensors(value, change)) return Called::kNo;
    if (value.isDevice()) value = c10::Device(c10::kCPU);
    stack.push_back(std::move(value));
  }
  try {
    op.callBoxed(&stack);
  } catch (const std::exception& error) {  // the shapes are found on `meta`, which raises what is wrong with the arguments
    bool of_type = std::string_view(error.what()).find("not implemented for") == std::string_view::npos;
    return of_type ? Called::kNo : Called::kNotOfThisType;
  }
  results = std::move(stack);
  return Called::kYes;
}

bool compute_on_twins(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, std::vector<c10::IValue>& results) {
  if (kDraws.count(op.schema().name()) && arguments[0].isTensor()) {
    const auto& tensor = arguments[0].toTensor();
    if (is_data(tensor, static_cast<int64_t>(tensor.nbytes()))) return false;
  }
  const auto called = call_on_cpu(op, arguments, results, twin_of);
  const auto& schema = op.schema();
  if (called != Called::kNotOfThisType || schema.returns().size() != 1 || !arguments[0].isTensor()) return called == Called::kYes;
  // Kernels that take whole numbers on a GPU alone, such as histc: floats of 64 bits hold what is counted.
  const auto floats = [](const Tensor& tensor) {
    auto twin = twin_of(tensor);
    return twin && at::isIntegralType(twin->scalar_type(), false) ? std::optional<Tensor>(twin->to(at::kDouble)) : std::nullopt;
  };
  if (schema.is_mutable() || call_on_cpu(op, arguments, results, floats) != Called::kYes || !results[0].isTensor()) return false;
  results[0] = results[0].toTensor().to(arguments[0].toTensor().scalar_type());
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

// Gradients that a backward operator is not asked for are not there.
void drop_masked(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& arguments, std::vector<c10::IValue>& results) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (schema.arguments()[i].name() != "output_mask" || !arguments[i].isBoolList()) continue;
    const auto asked = arguments[i].toBoolList();
    for (size_t j = 0; j < std::min(asked.size(), results.size()); ++j) {
      if (!asked[j] && results[j].isTensor()) results[j] = Tensor();
    }
  }
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
  drop_masked(schema, arguments, results);
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
    if (!is_written(schema.arguments()[i])) continue;
    for (const auto& tensor : tensors_in(arguments[i])) {
      note_written(tensor);
      if (!known && !kWritesNoValue.count(schema.name())) forget(tensor);
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
  if (schema.returns().empty()) {  // of lists in place and such, what is written are arguments
    bool first = true;
    for (size_t i = 0; i < count; ++i) {
      if (!is_written(schema.arguments()[i])) continue;
      if (!first) signature += ',';
      first = false;
      write(signature, arguments[i]);
    }
  }
  signature += ']';
  const auto& overload = schema.overload_name();
  add_operator(overload.empty() ? schema.name() : schema.name() + "." + overload, signature, known);
  stack->erase(stack->begin() + static_cast<int64_t>(base), stack->end());
  for (auto& value : results) stack->push_back(std::move(value));
}

TORCH_LIBRARY_IMPL(_, CUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_operator>()); }

}  // namespace

void register_operators(const std::vector<std::string>& names) {
  static std::vector<std::unique_ptr<torch::Library>> kept;
  kept.push_back(std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__));
  for (const auto& name : names) kept.back()->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_operator>());
}

}  // namespace capture
