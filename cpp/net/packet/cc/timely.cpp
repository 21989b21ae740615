#include "net/packet/cc/timely.h"

#include <algorithm>

namespace wt::net::packet {

Timely::Timely(const Values& v, std::int32_t pairs)
    : a_(v["a"]),
      b_(v["b"]),
      t_low_(v["t_low"]),
      t_high_(v["t_high"]),
      min_rtt_(v["min_rtt"]),
      rai_(v["rai"]),
      rhai_(v["rhai"]),
      rmin_(v["rmin"]),
      hai_after_(static_cast<std::int32_t>(v["hai_after"])),
      pairs_(static_cast<std::size_t>(pairs)) {}

void Timely::begin(std::int32_t pair, Time, const Line& line) {
  Pair p;
  p.rate = p.line = line.rate;
  p.min_rtt = min_rtt_ > 0.0 ? min_rtt_ : static_cast<double>(std::max<Time>(line.base_rtt, 1)) * kPicosecond;
  pairs_[static_cast<std::size_t>(pair)] = p;
}

void Timely::acked(std::int32_t pair, const Ack& ack) {
  Pair& p = pairs_[static_cast<std::size_t>(pair)];
  if (ack.seq <= p.updated) return;
  p.updated = ack.next;
  const double rtt = static_cast<double>(ack.rtt) * kPicosecond;
  const double before = p.rtt;
  p.rtt = rtt;
  if (before < 0.0) return;
  p.change += a_ * (rtt - before - p.change);
  const double gradient = p.change / p.min_rtt;
  if (rtt < t_low_ || (rtt <= t_high_ && gradient <= 0.0)) {
    p.rate += p.rises < hai_after_ ? rai_ : rhai_;
    if (p.rises < hai_after_) ++p.rises;
  } else {
    p.rate *= rtt > t_high_ ? 1.0 - b_ * (1.0 - t_high_ / rtt) : std::max(0.0, 1.0 - b_ * gradient);
    p.rises = 0;
  }
  p.rate = std::clamp(p.rate, std::min(rmin_, p.line), p.line);
}

Permit Timely::permit(std::int32_t pair, Time) { return {pairs_[static_cast<std::size_t>(pair)].rate, kNoWindow}; }

}  // namespace wt::net::packet
