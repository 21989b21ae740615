#include "net/packet/cc/hybrid.h"

#include <algorithm>

namespace wt::net::packet {

Hybrid::Hybrid(const Values& v, std::int32_t pairs)
    : rule_(v),
      alpha_{v["g"], v["alpha_first"], v.time("alpha_period"), true},
      interval_(v.time("cnp_interval")),
      rmin_(v["rmin"]),
      echo_(v.on("echo")),
      per_port_(v.on("cnp_per_port")),
      pairs_(static_cast<std::size_t>(pairs)) {}

void Hybrid::begin(std::int32_t pair, Time now, const Line& line) {
  Pair p;
  p.window.begin(rule_, now, line);
  p.cap = p.line = line.rate;
  p.cut = now - line.base_rtt;
  p.round_trip = static_cast<float>(p.window.rtt() * kPicosecond);
  settle(p);
  pairs_[static_cast<std::size_t>(pair)] = p;
}

void Hybrid::acked(std::int32_t pair, const Ack& ack) {
  Pair& p = pairs_[static_cast<std::size_t>(pair)];
  const double gained = p.window.acked(rule_, ack);
  if (echo_ && ack.marked) {
    notified(pair, ack.now);
  } else {
    p.cap = std::min(p.cap + gained * p.window.mtu() / static_cast<double>(p.round_trip), p.line);
  }
  settle(p);
}

void Hybrid::notified(std::int32_t pair, Time now) {
  Pair& p = pairs_[static_cast<std::size_t>(pair)];
  if (p.alpha.started()) {
    p.alpha.notify(alpha_, now);
  } else {
    p.alpha.start(alpha_, now);
  }
  if (static_cast<double>(now - p.cut) < p.window.rtt()) return;
  p.cap = std::max(p.rate * (1.0 - 0.5 * p.alpha.advance(alpha_, now)), std::min(rmin_, p.line));
  p.cut = now;
  settle(p);
}

void Hybrid::lost(std::int32_t pair, Time now, bool timed_out) {
  Pair& p = pairs_[static_cast<std::size_t>(pair)];
  p.window.lost(rule_, now, timed_out);
  settle(p);
}

void Hybrid::settle(Pair& p) { p.rate = std::min(p.cap, p.window.rate()); }

Permit Hybrid::permit(std::int32_t pair, Time) {
  const Pair& p = pairs_[static_cast<std::size_t>(pair)];
  return {p.rate, p.window.bytes()};
}

}  // namespace wt::net::packet
