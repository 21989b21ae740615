#include "operator_log.hpp"

#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/node.h>

#include <cmath>

namespace capture {
namespace {

using at::Tensor;

void write(std::string& text, at::IntArrayRef extents) {
  text += '[';
  for (size_t i = 0; i < extents.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(extents[i]);
  }
  text += ']';
}

int64_t sequence_now() {
  if (auto node = torch::autograd::get_current_node()) return static_cast<int64_t>(node->sequence_nr());
  auto next = static_cast<int64_t>(at::sequence_number::peek());
  return next - 1;
}

}  // namespace

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

}  // namespace capture
