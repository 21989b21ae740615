// The network that simulates one episode, in picoseconds from the episode's begin.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

#include "net/network.h"

namespace wt::net::replay {

using Time = std::int64_t;  // picoseconds
inline constexpr Time kForever = INT64_MAX;

[[nodiscard]] Time picoseconds(double seconds);
// Division, so that whole picoseconds come back as the number that was given.
[[nodiscard]] inline double seconds(Time t) { return static_cast<double>(t) / 1e12; }

struct End {
  Time at;
  std::int32_t launch;
  bool operator>(const End& o) const { return std::tie(at, launch) > std::tie(o.at, o.launch); }
};

class Inside {
 public:
  explicit Inside(std::unique_ptr<Network> network) : network_(std::move(network)) {}

  void play(std::int32_t launch, Time at, const Flow& flow);
  [[nodiscard]] Time next() const;
  std::optional<End> advance();  // to next()
  void put_back(const End& end) { known_.push(end); }
  [[nodiscard]] Network& network() { return *network_; }

 private:
  std::unique_ptr<Network> network_;
  double now_ = 0.0;                                                  // its clock
  std::priority_queue<End, std::vector<End>, std::greater<>> known_;  // ends that it has said already
};

}  // namespace wt::net::replay
