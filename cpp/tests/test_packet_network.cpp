// The packet engine below the exec core: plans launched by key.
#include "base/time.h"
#include "net/packet/network.h"
#include "tests/check.h"
#include "tests/packet_feed.h"
#include "tests/packet_net.h"

using namespace wt::net::packet;
using wt::net::Flow;

namespace {

// Two hosts on a switch, 100 Gb/s, 1 us. Plan 0: a packet 0 -> 1 and, after it, one back. Plan 1: ten packets 0 -> 1.
PlanTable table() {
  packet_net::Net net;
  net.host();
  net.host();
  const int s = net.node(wt::fabric::NodeKind::kSwitch);
  net.cable(0, s, 12.5e9, 1e-6);
  net.cable(1, s, 12.5e9, 1e-6);
  net.lane(0, 1, 4096, {0, 3});
  net.lane(1, 0, 4096, {2, 1});
  net.after(0, 0);
  net.lane(0, 1, 10 * 4096, {0, 3});
  PlanTable t = packet_net::table_of(net, {0, 2, 3});
  t.key = {70, 71};
  return t;
}

std::vector<wt::net::Completion> drain(PacketNetwork& n) {
  std::vector<wt::net::Completion> all;
  double last = 0;
  while (n.next_event() != wt::kNever) {
    CHECK(n.next_event() >= last);
    last = n.next_event();
    if (const auto end = n.advance()) all.push_back(*end);
  }
  return all;
}

constexpr double kHop = 327.68e-9 + 1e-6;

}  // namespace

TEST(packet_network_launches_plans) {
  PacketNetwork n(table(), {});
  NEAR(*n.start({.id = 9, .key = 5, .begin = 1.0, .seconds = 2.0}), 3.0);  // no plan
  CHECK(!n.start({.id = 3, .key = 70, .begin = 1e-3}));
  CHECK(!n.start({.id = 4, .key = 71, .begin = 2e-3}));
  const auto ends = drain(n);
  CHECK(ends.size() == 2 && ends[0].id == 3 && ends[1].id == 4);
  NEAR(ends[0].end, 1e-3 + 4 * kHop + 5.12e-9);  // the ACK leaves before the packet back
  NEAR(ends[1].end, 2e-3 + 2 * kHop + 9 * 327.68e-9);
  const PlanReport r = n.report();
  CHECK(r.starts[0] == 1 && r.starts[1] == 1);
  NEAR(r.longest[1], 2 * kHop + 9 * 327.68e-9);
}

TEST(packet_network_same_plan_twice_shares_links) {
  for (const char* control : {"none", "dcqcn", "hpcc"}) {
    Options o;
    o.control_name = control;
    PacketNetwork n(table(), o);
    CHECK(!n.start({.id = 0, .key = 71, .begin = 0}));
    CHECK(!n.start({.id = 1, .key = 71, .begin = 0}));
    const auto ends = drain(n);
    CHECK(ends.size() == 2);
    NEAR(ends[1].end, 2 * kHop + 19 * 327.68e-9);
    for (int i = 0; i < 50; ++i) {  // pairs of plans that are over are used again
      const double at = 1e-3 * (i + 1);
      CHECK(!n.start({.id = 2, .key = 71, .begin = at}));
      const auto again = drain(n);
      CHECK(again.size() == 1);
      NEAR(again[0].end - at, 2 * kHop + 9 * 327.68e-9);
    }
    CHECK(n.report().starts[1] == 52);
  }
}

TEST(packet_network_bad_tables) {
  PlanTable t = table();
  t.key_plan = {0, 7};
  THROWS(PacketNetwork(t, {}), "names plan 7");
  t = table();
  t.key = {70, 70};
  THROWS(PacketNetwork(t, {}), "is there twice");
  t = table();
  t.dep_lane[0] = 2;
  THROWS(PacketNetwork(t, {}), "plan 0 depends on its lane 2 of 2");
}

// Pairs are numbered by the caller's clock: at 12 us the first launch of plan 0 is not over, though it has been simulated further,
// so its second one has pairs behind those that plan 1 gets at the same moment, and sends behind it.
TEST(packet_network_numbers_pairs_by_the_callers_clock) {
  PlanTable t = table();
  for (double& begin : t.begin) begin = 10e-6;
  std::vector<std::vector<wt::net::Completion>> told;
  for (const double most : {0.0, 1.0}) {
    Options o;
    o.most_ahead = most;
    PacketNetwork n(t, o);
    CHECK((n.ahead() > 0) == (most > 0));
    told.push_back({});
    double at = 0;
    for (const bool again : {false, true}) {
      while (again && n.next_event() <= 12e-6)
        if (const auto end = n.advance()) told.back().push_back(*end);
      at = again ? 12e-6 : 0;
      CHECK(!n.start({.id = again ? 2 : 0, .key = again ? 71 : 70, .begin = at, .clock = at}));
      CHECK(!n.start({.id = again ? 3 : 1, .key = again ? 70 : 71, .begin = at, .clock = at}));
    }
    for (const auto& end : drain(n)) told.back().push_back(end);
  }
  CHECK(told[0].size() == 4 && told[1].size() == 4);
  for (std::size_t i = 0; i < 4; ++i) CHECK(told[0][i].id == told[1][i].id && told[0][i].end == told[1][i].end);
}
