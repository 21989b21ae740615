// DCQCN: a rate, cut on congestion notifications by alpha/2 and raised again by a timer and a byte counter.
//   cut:       target = rate (without `clamp` only if it rose since the last cut); rate *= max(1 - alpha/2, min_factor); i = j = 0
//   increase:  at the end of each timer period (i counts those before it) and of each `bytes` sent (j),
//              target += 0 if max(i,j) < F; hyper if min(i,j) > F; additive else;   rate = (target + rate) / 2
// Without the byte counter i alone decides. Y. Zhu et al., "Congestion control for large-scale RDMA deployments", SIGCOMM 2015;
// names of NIC parameters in brackets are those of ConnectX. A rate within 2^-20 of the line rate counts as recovered.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "net/packet/cc/algorithm.h"
#include "net/packet/cc/alpha.h"

namespace wt::net::packet {

// Defaults are those of ConnectX NICs' firmware.
inline constexpr std::array kDcqcnParameters{
    Parameter{"g", "", 5.0 / 1024.0, 0.0, 1.0, "gain of alpha [1 - dce_tcp_g/1024]"},
    Parameter{"alpha_first", "", 1023.0 / 1024.0, 0.0, 1.0, "alpha at the first notification [initial_alpha_value/1024]"},
    Parameter{"alpha_period", "s", 1e-6, 1e-9, 10.0, "time between updates of alpha [dce_tcp_rtt]"},
    Parameter{"alpha_by_timer", "0/1", 1.0, 0.0, 1.0, "1: alpha moves once a period; 0: on each notification and quiet period"},
    Parameter{"cut_window", "s", 4e-6, 0.0, 10.0, "one cut in each at most, at its end; 0: no limit [rate_reduce_monitor_period]"},
    Parameter{"min_factor", "", 0.5, 0.0, 1.0, "smallest factor of one cut [rpg_min_dec_fac/100]"},
    Parameter{"clamp", "0/1", 0.0, 0.0, 1.0, "1: every cut lowers the target too [clamp_tgt_rate]"},
    Parameter{"first_factor", "", 1.0, 0.0, 1.0, "factor on the rate at the first notification"},
    Parameter{"timer", "s", 300e-6, 1e-9, 10.0, "period of the increase timer [rpg_time_reset]"},
    Parameter{"bytes", "B", 64.0 * 32767.0, 0.0, 1e15, "bytes of the increase counter, 0: no counter [64 rpg_byte_reset]"},
    Parameter{"threshold", "", 1.0, 0.0, 60000.0, "F: periods of fast recovery [rpg_threshold]"},
    Parameter{"rai", "B/s", 5e6 / 8.0, 0.0, 1e15, "additive increase of the target [rpg_ai_rate]"},
    Parameter{"rhai", "B/s", 50e6 / 8.0, 0.0, 1e15, "hyper increase of the target [rpg_hai_rate]"},
    Parameter{"hyper_grows", "0/1", 0.0, 0.0, 1.0, "1: the hyper increase is multiplied with min(i,j) - F"},
    Parameter{"rmin", "B/s", 1e6 / 8.0, 1.0, 1e15, "smallest rate [rpg_min_rate]"},
    Parameter{"scale", "B/s", 0.0, 0.0, 1e15, "line rate that rai and rhai are stated for and scale with; 0: they do not scale"},
    Parameter{"cnp_interval", "s", 4e-6, 0.0, 10.0, "least time between notifications [min_time_between_cnps]"},
    Parameter{"cnp_per_port", "0/1", 1.0, 0.0, 1.0, "1: that time is between any two notifications of a port; 0: to the same pair"},
    Parameter{"echo", "0/1", 0.0, 0.0, 1.0, "1: marks come back in ACKs, each a notification; 0: in CNPs"},
    Parameter{"window", "", 0.0, 0.0, 1e6, "bytes outstanding in units of rate x idle round trip; 0: no limit"},
};

class Dcqcn final : public Control {
 public:
  Dcqcn(const Values& values, std::int32_t pairs);
  [[nodiscard]] bool wants_notifications() const override { return !echo_; }
  [[nodiscard]] Time notification_interval() const override { return interval_; }
  [[nodiscard]] bool notifications_per_port() const override { return per_port_; }
  void begin(std::int32_t pair, Time now, const Line& line) override;
  void acked(std::int32_t pair, const Ack& ack) override;
  void notified(std::int32_t pair, Time now) override;
  void sent(std::int32_t pair, Time now, std::int64_t bytes) override;
  [[nodiscard]] Permit permit(std::int32_t pair, Time now) override;

 private:
  struct Pair {
    double rate = 0.0;
    Time due = kNoTime;     // the earlier of cut and timer: the rate holds until then
    std::int64_t left = 0;  // bytes until the counter's next increase
    double line = 0.0;
    double target = 0.0;
    Time cut = kNoTime;
    Time timer = kNoTime;
    Time first = 0;  // cut windows are counted from the first notification
    Alpha alpha;
    float round_trip = 0.0F;  // s
    std::uint16_t i = 0;      // timer periods since the last cut
    std::uint16_t j = 0;      // byte counter's periods since then
  };

  static_assert(sizeof(Pair) <= 96);

  void catch_up(Pair& p, Time now);
  void cut(Pair& p, Time when);
  void increase(Pair& p, std::uint16_t& stage, std::int64_t times);
  [[nodiscard]] double step(const Pair& p) const;

  AlphaRule alpha_;
  Time cut_window_;
  Time timer_;
  Time interval_;
  std::int64_t bytes_;
  double min_factor_;
  double first_factor_;
  double threshold_;
  double rai_, rai_of_line_;  // B/s, and as a fraction of the line rate; one of them is 0
  double rhai_, rhai_of_line_;
  double rmin_;
  double window_;
  bool clamp_;
  bool hyper_grows_;
  bool echo_;
  bool per_port_;
  std::vector<Pair> pairs_;
};

inline constexpr Algorithm kDcqcn{
    "dcqcn", "rate cut by congestion notifications, raised by timer and byte counter", kDcqcnParameters,
    [](const Values& values, std::int32_t pairs) -> std::unique_ptr<Control> { return std::make_unique<Dcqcn>(values, pairs); }};

}  // namespace wt::net::packet
