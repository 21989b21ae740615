// A storage on the device: an address and, where its values are known, a twin on the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include "log.hpp"

namespace capture {

enum class Values : uint8_t {
  kFresh,    // nobody has written: zeros, where anyone asks
  kKnown,    // the twin holds them
  kUnknown,  // they would need the GPU
};

struct Storage {
  int64_t address = 0;
  int64_t bytes = 0;
  Values values = Values::kFresh;
  bool watched = false;  // a parameter's: whoever writes it updates the model
  int8_t rule = -1;  // of unknown truth values: what all of them are by rule, -1 none
  c10::intrusive_ptr<c10::StorageImpl> twin;
};

struct Memory {
  int64_t live;
  int64_t peak;
};

c10::Allocator& device_allocator();
Memory memory_now();
void reset_peak();
int& device_count();

}  // namespace capture
