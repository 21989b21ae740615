// HPCC: a window set from the load that every link on the path reports. For each ACK, over the hops, with T the idle round trip:
//   u = (bytes the port sent since the last ACK's packet / time between them + min(queue, queue before) / T) / port rate
//   U += min(dt, T) / T * (max u - U)                       dt: that hop's time between the two packets
//   W = Wc * eta / U + Wai if U >= eta or `stages` increases have passed, else Wc + Wai;   rate = W / T
// W holds at once; Wc = W only once a round trip, so that all ACKs of a round trip start from the same Wc. The first ACK, and the
// first on a path of another length, only leave their telemetry. Y. Li et al., "HPCC: high precision congestion control",
// SIGCOMM 2019. Under packet spraying consecutive ACKs report different ports and U means little.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "net/packet/cc/algorithm.h"

namespace wt::net::packet {

inline constexpr std::array kHpccParameters{
    Parameter{"eta", "", 0.95, 0.01, 1.0, "load of a link that is aimed at"},
    Parameter{"stages", "", 0.0, 0.0, 60000.0, "additive increases in a row before a multiplicative one"},
    Parameter{"rai", "B/s", 50e6 / 8.0, 0.0, 1e15, "additive increase, as a rate: Wai = rai x T"},
    Parameter{"flows", "", 0.0, 0.0, 1e9, "if not 0: Wai = line rate x T x (1 - eta) / flows, instead of rai"},
    Parameter{"rmin", "B/s", 100e6 / 8.0, 1.0, 1e15, "smallest rate"},
};

class Hpcc final : public Control {
 public:
  Hpcc(const Values& values, std::int32_t pairs);
  [[nodiscard]] bool wants_telemetry() const override { return true; }
  void begin(std::int32_t pair, Time now, const Line& line) override;
  void acked(std::int32_t pair, const Ack& ack) override;
  [[nodiscard]] Permit permit(std::int32_t pair, Time now) override;

 private:
  struct Past {
    Time time = 0;
    std::int64_t sent = 0;
    std::int64_t queue = 0;
  };
  struct Pair {
    double rate = 0.0;
    double window = 0.0;       // B
    double committed = 0.0;    // Wc
    double load = 1.0;         // U
    double most = 0.0;         // line rate x T
    double round_trip = 0.0;   // s
    std::int64_t updated = 0;  // Wc follows W with the first ACK beyond this byte
    std::unique_ptr<Past[]> past;
    std::int32_t hops = 0;  // of which `past` holds telemetry
    std::int32_t mtu = 0;
    std::int32_t stage = 0;
  };
  static_assert(sizeof(Pair) <= 96);

  void measure(Pair& p, std::span<const Hop> hops) const;

  double eta_;
  double rai_;
  double flows_;
  double rmin_;
  std::int32_t stages_;
  std::vector<Pair> pairs_;
};

inline constexpr Algorithm kHpcc{
    "hpcc", "window from the load that switches report", kHpccParameters,
    [](const Values& values, std::int32_t pairs) -> std::unique_ptr<Control> { return std::make_unique<Hpcc>(values, pairs); }};

}  // namespace wt::net::packet
