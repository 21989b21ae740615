// The congestion controls there are, by name. A new one: one file beside this, one line in registry.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "net/packet/cc/algorithm.h"

namespace wt::net::packet {

struct Setting {
  std::string name;
  double value = 0.0;
};

[[nodiscard]] std::span<const Algorithm> algorithms();

// A control for queue pairs 0..pairs-1; parameters that `settings` leaves out have their defaults. Calls for different pairs may
// come from different threads at once. Unknown names and values out of bounds fail, with what is known.
[[nodiscard]] std::unique_ptr<Control> make_control(std::string_view name, std::span<const Setting> settings, std::int32_t pairs);

}  // namespace wt::net::packet
