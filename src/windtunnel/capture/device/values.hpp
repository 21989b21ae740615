// Values of the device's tensors: true ones where they are known and small, and rules for the others.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <vector>

#include "storage.hpp"

namespace capture {

// The storage of a tensor on the device; null for another tensor, and for one without elements.
Storage* storage_of(const at::Tensor& tensor);

// Whether values of a storage of so many bytes are kept.
bool is_kept(const at::Tensor& tensor, int64_t bytes);

// Whether a tensor of so many bytes is data, such as weights, rather than a scale: what is drawn for it is not kept.
bool is_data(const at::Tensor& tensor, int64_t bytes);

// The tensor's true values on the CPU, which share its storage's twin; none where they are not known.
std::optional<at::Tensor> twin_of(const at::Tensor& tensor);

// The values of the tensor's storage are not known any more. `rule`: what unknown truth values all are, -1 nothing.
void forget(const at::Tensor& tensor, int8_t rule = -1);

// An operator has written the tensor: whether parameters were, outside of a backward pass, is kept until it is asked for.
void note_written(const at::Tensor& tensor);
void watch(const at::Tensor& tensor);
bool take_watched();

// Writes true values; whoever covers the whole storage makes them known.
bool write_values(const at::Tensor& tensor, const at::Tensor& values);

// Rules for the results `made` of an operator whose values would need the GPU: everything is finite, choices are even.
void apply_rules(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, const std::vector<at::Tensor>& made);

// What the host gets for a value that is not known, and that in words.
double answer(const at::Tensor& tensor);
std::string rule_text(const at::Tensor& tensor);

}  // namespace capture
