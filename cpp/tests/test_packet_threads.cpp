// The same bits for any number of partitions and threads, and laws of every run, over all kinds of fabric behaviour.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "net/packet/engine.h"
#include "tests/check.h"
#include "tests/packet_net.h"

using namespace wt::net::packet;

namespace {

packet_net::Net traffic(std::int64_t bytes, int flows) {
  packet_net::Net net = packet_net::fat_tree(4, 12.5e9, 1e-6);
  for (int i = 0; i < flows; ++i) {
    const auto src = static_cast<int>(mix(static_cast<std::uint64_t>(i)) % 16);
    const auto dst = static_cast<int>((static_cast<std::uint64_t>(src) + 1 + mix(static_cast<std::uint64_t>(i) + 999) % 15) % 16);
    net.lane(src, dst, bytes, packet_net::fat_tree_path(4, src, dst, mix(static_cast<std::uint64_t>(i) + 5)), 1e-6 * (i % 7),
             65536);
  }
  return net;
}

bool same(const Result& a, const Result& b) {
  return a.delivered == b.delivered && a.acked == b.acked && a.link_data == b.link_data && a.link_control == b.link_control &&
         a.link_peak == b.link_peak && a.link_paused == b.link_paused && a.end == b.end &&
         std::memcmp(&a.stats, &b.stats, sizeof a.stats) == 0 && a.queue == b.queue && a.sent == b.sent && a.pauses == b.pauses &&
         a.rate == b.rate && a.acknowledged == b.acknowledged && a.cnps == b.cnps;
}

Stats check_all(const std::string& name, const packet_net::Net& net, Options o, const Faults& faults = {}) {
  o.sample = 5e-6;
  for (int i = 0; i < 96; i += 5) o.sample_links.push_back(i);
  for (int i = 0; i < 8; ++i) o.sample_lanes.push_back(i);
  o.parts = 1;
  const Result one = run(net.graph(), net.paths(), net.lanes(), o, faults);
  for (std::size_t l = 0; l < one.link_data.size(); ++l)
    CHECK(static_cast<double>(one.link_data[l] + one.link_control[l]) <= net.rate[l] * one.end * (1 + 1e-9));
  CHECK(std::all_of(one.delivered.begin(), one.delivered.end(), [](double t) { return t >= 0; }));
  for (const auto& [parts, threads] : {std::pair{0, 2}, {0, 3}, {0, 8}, {3, 1}, {8, 1}, {8, 3}}) {
    o.parts = parts;
    o.threads = threads;
    const Result many = run(net.graph(), net.paths(), net.lanes(), o, faults);
    CHECK(many.partitions > 1);
    const bool equal = same(one, many);
    if (!equal) std::cerr << name << " differs with " << parts << " partitions on " << threads << " threads\n";
    CHECK(equal);
  }
  return one.stats;
}

Options base(const char* control) {
  Options o;
  o.control_name = control;
  o.ecn = {{12.5e9, 50e3, 200e3, 0.5}};
  return o;
}

}  // namespace

TEST(packet_threads_plain) { check_all("plain", traffic(150'000, 60), base("none")); }
TEST(packet_threads_controls) {
  for (const char* control : {"dcqcn", "hpcc", "swift", "timely"}) check_all(control, traffic(150'000, 60), base(control));
}
TEST(packet_threads_pauses) {
  Options o = base("none");
  o.buffer = 200e3;
  CHECK(check_all("small buffer", traffic(150'000, 60), o).pauses > 0);
  o.xoff = 5 * 4096;
  o.xon = 3 * 4096;
  CHECK(check_all("fixed thresholds", traffic(150'000, 60), o).pauses > 0);
}
TEST(packet_threads_lossy) {
  Options o = base("dcqcn");
  o.loss = Loss::kDrop;
  o.buffer = 200e3;
  o.alpha = 1;
  o.timeouts = {3e-4, 1e-3};
  CHECK(check_all("go-back-N", traffic(150'000, 60), o).drops > 0);
  o.recovery = Recovery::kSelective;
  CHECK(check_all("selective", traffic(150'000, 60), o).drops > 0);
}
TEST(packet_threads_credits) {
  Options o = base("none");
  o.loss = Loss::kCredits;
  check_all("credits", traffic(150'000, 60), o);
}
TEST(packet_threads_spread) {
  for (const Spread spread : {Spread::kRound, Spread::kRandom, Spread::kAdaptive, Spread::kFlowlet}) {
    Options o = base("none");
    o.spread = spread;
    o.recovery = Recovery::kSelective;
    o.flowlet_gap = 1e-6;
    check_all("spread", traffic(150'000, 60), o);
  }
}
TEST(packet_threads_faults) {
  packet_net::Net net = traffic(300'000, 60);
  Options o = base("dcqcn");
  o.timeouts = {2e-4};
  o.ack_every = 4;
  Faults f;
  f.loss.assign(net.from.size(), 1e-3);
  f.bit_error.assign(net.from.size(), 1e-9);
  f.flaps = {{20e-6, 40, false}, {60e-6, 40, true}, {25e-6, 70, false}, {90e-6, 70, true}};
  CHECK(check_all("faults", net, o, f).losses > 0);
  o.control_name = "hpcc";
  o.recovery = Recovery::kSelective;
  check_all("faults, selective", net, o, f);
  o.loss = Loss::kCredits;
  check_all("faults, credits", net, o, f);
}
