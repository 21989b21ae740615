// The kernel of every operator.
#pragma once

#include <string>
#include <vector>

namespace capture {

// Gives operators that have a kernel of their own on a GPU one here, so that they are recorded as themselves and not as the parts
// that they are composed of.
void register_operators(const std::vector<std::string>& names);

}  // namespace capture
