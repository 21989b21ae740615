// Operators of the device, and what Python asks of them.
#pragma once

#include <string>
#include <vector>

#include "storage.hpp"

namespace capture {

// The line of the script that is being run: `file:line`, or where autograd runs without one.
std::string site_of_call();

// Gives operators that have a kernel of their own on a GPU one here, so that they are recorded as themselves and not as the parts
// that they are composed of.
void register_operators(const std::vector<std::string>& names);

void resize_storage(c10::Storage storage, int64_t bytes);

}  // namespace capture
