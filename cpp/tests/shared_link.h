// The smallest network with a clock of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include "base/time.h"
#include "net/network.h"

// One link that all flows share equally.
class SharedLink final : public wt::net::Network {
 public:
  std::optional<double> start(const wt::net::Flow& flow) override {
    flows_[flow.id] = {flow.begin, flow.seconds};
    return std::nullopt;
  }
  [[nodiscard]] double next_event() const override {
    double next = wt::kNever;
    const auto share = static_cast<double>(active());
    for (const auto& [id, f] : flows_) next = std::min(next, f.begin > now_ ? f.begin : now_ + f.left * share);
    return next;
  }
  std::optional<wt::net::Completion> advance() override {
    const double to = next_event();
    const auto share = static_cast<double>(active());
    std::optional<wt::net::Completion> done;
    for (auto& [id, f] : flows_) {
      if (f.begin > now_) continue;
      const bool first = !done && now_ + f.left * share <= to;
      f.left = first ? 0.0 : std::max(0.0, f.left - (to - now_) / share);
      if (first) done = wt::net::Completion{id, to};
    }
    if (done) flows_.erase(done->id);
    now_ = to;
    return done;
  }

 private:
  struct Active {
    double begin, left;
  };
  [[nodiscard]] int active() const {
    return static_cast<int>(std::count_if(flows_.begin(), flows_.end(), [&](const auto& f) { return f.second.begin <= now_; }));
  }
  std::map<std::int32_t, Active> flows_;
  double now_ = 0.0;
};
