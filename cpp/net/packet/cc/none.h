// No congestion control: line rate, and a fixed window if one is given. Only the fabric's flow control remains.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "net/packet/cc/algorithm.h"

namespace wt::net::packet {

inline constexpr std::array kNoneParameters{
    Parameter{"window", "B", 0.0, 0.0, 1e15, "bytes that may be outstanding; 0: any number"},
};

class None final : public Control {
 public:
  None(const Values& values, std::int32_t pairs)
      : window_(values["window"] > 0.0 ? static_cast<std::int64_t>(values["window"]) : kNoWindow),
        rates_(static_cast<std::size_t>(pairs)) {}
  void begin(std::int32_t pair, Time, const Line& line) override { rates_[static_cast<std::size_t>(pair)] = line.rate; }
  [[nodiscard]] Permit permit(std::int32_t pair, Time) override { return {rates_[static_cast<std::size_t>(pair)], window_}; }

 private:
  std::int64_t window_;
  std::vector<double> rates_;
};

inline constexpr Algorithm kNone{
    "none", "line rate, with a fixed window if one is given", kNoneParameters,
    [](const Values& values, std::int32_t pairs) -> std::unique_ptr<Control> { return std::make_unique<None>(values, pairs); }};

}  // namespace wt::net::packet
