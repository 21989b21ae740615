// What is recorded of operators: their inputs and outputs as text, and values that the host reads.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

#include "log.hpp"

namespace capture {

// Appends a value as JSON: a tensor as its dtype, extents, and elements that lie in memory (expanded extents are read once).
void write(std::string& text, const c10::IValue& value);
void write(std::string& text, const at::Tensor& tensor);

// `known`: whether it was computed with true values.
void add_operator(const std::string& name, const std::string& signature, bool known);

void add_read(const std::string& what);

// The line of the script that is being run: `file:line`, or where autograd runs without one.
std::string site_of_call();

}  // namespace capture
