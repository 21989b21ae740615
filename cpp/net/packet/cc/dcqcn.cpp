#include "net/packet/cc/dcqcn.h"

#include <algorithm>

namespace wt::net::packet {

namespace {

constexpr double kRecovered = 1.0 - 1.0 / (1 << 20);
constexpr std::int64_t kSettled = 64;  // after so many equal steps the rate no longer depends on where it was

}  // namespace

Dcqcn::Dcqcn(const Values& v, std::int32_t pairs)
    : alpha_{v["g"], v["alpha_first"], v.time("alpha_period"), v.on("alpha_by_timer")},
      cut_window_(v.time("cut_window")),
      timer_(v.time("timer")),
      interval_(v.time("cnp_interval")),
      bytes_(static_cast<std::int64_t>(v["bytes"])),
      min_factor_(v["min_factor"]),
      first_factor_(v["first_factor"]),
      threshold_(v["threshold"]),
      rai_(v["scale"] > 0.0 ? 0.0 : v["rai"]),
      rai_of_line_(v["scale"] > 0.0 ? v["rai"] / v["scale"] : 0.0),
      rhai_(v["scale"] > 0.0 ? 0.0 : v["rhai"]),
      rhai_of_line_(v["scale"] > 0.0 ? v["rhai"] / v["scale"] : 0.0),
      rmin_(v["rmin"]),
      window_(v["window"]),
      clamp_(v.on("clamp")),
      hyper_grows_(v.on("hyper_grows")),
      echo_(v.on("echo")),
      per_port_(v.on("cnp_per_port")),
      pairs_(static_cast<std::size_t>(pairs)) {}

void Dcqcn::begin(std::int32_t pair, Time, const Line& line) {
  Pair p;
  p.rate = p.target = p.line = line.rate;
  p.round_trip = static_cast<float>(static_cast<double>(line.base_rtt) * kPicosecond);
  pairs_[static_cast<std::size_t>(pair)] = p;
}

void Dcqcn::acked(std::int32_t pair, const Ack& ack) {
  if (echo_ && ack.marked) notified(pair, ack.now);
}

void Dcqcn::notified(std::int32_t pair, Time now) {
  Pair& p = pairs_[static_cast<std::size_t>(pair)];
  catch_up(p, now);
  if (!p.alpha.started()) {
    p.alpha.start(alpha_, now);
    p.first = now;
    p.rate *= first_factor_;
    p.rate = p.target = std::max(p.rate, std::min(rmin_, p.line));
  } else if (alpha_.by_timer) {  // the first one sets alpha, and does not count for its first period
    p.alpha.notify(alpha_, now);
  }
  if (cut_window_ == 0) {
    cut(p, now);
  } else if (p.cut == kNoTime) {
    p.cut = p.first + ((now - p.first) / cut_window_ + 1) * cut_window_;
  }
  if (!alpha_.by_timer) p.alpha.notify(alpha_, now);  // the paper's order: cut with the old alpha
  p.due = std::min(p.cut, p.timer);
}

void Dcqcn::sent(std::int32_t pair, Time now, std::int64_t bytes) {
  Pair& p = pairs_[static_cast<std::size_t>(pair)];
  if (bytes_ == 0 || p.rate >= p.line) return;
  p.left -= bytes;
  if (p.left > 0) return;
  catch_up(p, now);
  const std::int64_t times = -p.left / bytes_ + 1;
  p.left += times * bytes_;
  increase(p, p.j, times);
  p.due = std::min(p.cut, p.timer);
}

Permit Dcqcn::permit(std::int32_t pair, Time now) {
  Pair& p = pairs_[static_cast<std::size_t>(pair)];
  if (p.due <= now) catch_up(p, now);
  if (window_ == 0.0) return {p.rate, kNoWindow, p.due};
  const double bytes = window_ * p.rate * static_cast<double>(p.round_trip);
  return {p.rate, std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes)), p.due};
}

void Dcqcn::catch_up(Pair& p, Time now) {
  while (p.due <= now) {
    if (p.cut <= p.timer) {
      const Time when = p.cut;
      p.cut = kNoTime;
      cut(p, when);
    } else {
      const Time until = std::min(now, p.cut == kNoTime ? kNoTime : p.cut - 1);
      const std::int64_t times = (until - p.timer) / timer_ + 1;
      p.timer += times * timer_;
      increase(p, p.i, times);
    }
    p.due = std::min(p.cut, p.timer);
  }
}

void Dcqcn::cut(Pair& p, Time when) {
  const double alpha = p.alpha.advance(alpha_, when);
  if (clamp_ || p.i > 0 || p.j > 0) p.target = p.rate;
  p.rate = std::max(p.rate * std::max(1.0 - 0.5 * alpha, min_factor_), std::min(rmin_, p.line));
  p.i = p.j = 0;
  p.left = bytes_;
  p.timer = when + timer_;
}

// What the target gains in the phase that p's stages say.
double Dcqcn::step(const Pair& p) const {
  const double timer = p.i;
  const double bytes = bytes_ > 0 ? static_cast<double>(p.j) : timer;
  if (std::max(timer, bytes) < threshold_) return 0.0;
  const double over = std::min(timer, bytes) - threshold_;
  if (over <= 0.0) return rai_ + rai_of_line_ * p.line;
  return (rhai_ + rhai_of_line_ * p.line) * (hyper_grows_ ? over : 1.0);
}

// `times` increases in a row by one of the two counters.
void Dcqcn::increase(Pair& p, std::uint16_t& stage, std::int64_t times) {
  constexpr std::uint16_t kMost = UINT16_MAX;
  while (times-- > 0) {
    const double gain = step(p);
    p.target = std::min(p.target + gain, p.line);
    p.rate = 0.5 * (p.target + p.rate);
    if (stage < kMost) ++stage;
    if (p.rate >= p.line * kRecovered) {
      p.rate = p.target = p.line;
      p.timer = kNoTime;
      return;
    }
    if (times > 2 * kSettled && stage > threshold_ + 1.0 && (!hyper_grows_ || step(p) == gain)) {
      const std::int64_t skipped = times - kSettled;
      p.target = std::min(p.target + static_cast<double>(skipped) * step(p), p.line);
      stage = static_cast<std::uint16_t>(std::min<std::int64_t>(stage + skipped, kMost));
      times = kSettled;
    }
  }
}

}  // namespace wt::net::packet
