// The closed form: a transfer takes the seconds that its participants stated, whatever else is in flight.
#pragma once

#include "base/time.h"
#include "net/network.h"

namespace wt::net {

class Closed final : public Network {
 public:
  std::optional<double> start(const Flow& flow) override { return flow.begin + flow.seconds; }
  [[nodiscard]] double next_event() const override { return kNever; }
  std::optional<Completion> advance() override { return std::nullopt; }
};

}  // namespace wt::net
