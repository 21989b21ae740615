// Groups whose calls are recorded and move nothing.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace capture {

c10::intrusive_ptr<c10d::Backend> make_group(int rank, int size, int32_t number);

}  // namespace capture
