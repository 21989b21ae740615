// Times of single packets and flows by hand. 100 Gb/s: 80 ps a byte; packets of 4096 B, 327.68 ns; control frames of 64 B, 5.12 ns.
#include "net/packet/engine.h"

#include <algorithm>
#include <cmath>

#include "tests/check.h"
#include "tests/packet_net.h"

using namespace wt::net::packet;
using packet_net::Net;
using wt::fabric::NodeKind;

namespace {

constexpr double kRate = 12.5e9, kUs = 1e-6, kPacket = 327.68e-9, kFrame = 5.12e-9;

// `hosts` hosts on one switch, cables of 1 us; link 2 h is host h's way up, 2 h + 1 its way down.
Net star(int hosts) {
  Net net;
  for (int i = 0; i < hosts; ++i) net.host();
  const int s = net.node(NodeKind::kSwitch);
  for (int i = 0; i < hosts; ++i) net.cable(i, s, kRate, kUs);
  return net;
}

int send(Net& net, int src, int dst, std::int64_t bytes, double at = 0, std::int64_t piece = 0) {
  return net.lane(src, dst, bytes, {2 * src, 2 * dst + 1}, at, piece);
}

Result go(const Net& net, const Options& options = {}, const Faults& faults = {}) {
  return run(net.graph(), net.paths(), net.lanes(), options, faults);
}

}  // namespace

TEST(packet_alone) {
  Net net = star(2);
  send(net, 0, 1, 4096);
  const Result r = go(net);
  NEAR(r.delivered[0], 2 * (kPacket + kUs));
  NEAR(r.acked[0], 2 * (kPacket + kUs) + 2 * (kFrame + kUs));
  CHECK(r.stats.data_hops == 2 && r.stats.ack_hops == 2);
  CHECK(r.link_data[0] == 4096 && r.link_control[0] == 0 && r.link_control[1] == 64 && r.link_control[2] == 64);
}

TEST(packet_flow_alone_is_store_and_forward) {
  Net net = star(2);
  send(net, 0, 1, 100 * 4096 + 1000, 5e-6);
  const Result r = go(net);
  // the last hop is the short packet's, behind the full one before it
  NEAR(r.delivered[0], 5e-6 + 101 * kPacket + 2 * kUs + 80e-9);
  CHECK(r.stats.data_hops == 2 * 101);
}

TEST(packet_empty_lane_and_lane_to_itself) {
  Net net = star(2);
  send(net, 0, 1, 0);
  net.lane(1, 1, 1000, {}, 3e-6);
  const Result r = go(net);
  NEAR(r.delivered[0], 2 * (kFrame + kUs));  // one frame of the size of a control frame
  NEAR(r.delivered[1], 3e-6);
  NEAR(r.acked[1], 3e-6);
}

TEST(packet_two_to_one_share_the_port) {
  Net net = star(3);
  send(net, 0, 2, 10 * 4096);
  send(net, 1, 2, 10 * 4096);
  const Result r = go(net);
  // 20 packets leave the switch back to back after the first arrived; equal times go by the number of the link
  NEAR(r.delivered[1], kPacket + kUs + 20 * kPacket + kUs);
  NEAR(r.delivered[0], kPacket + kUs + 19 * kPacket + kUs);
  CHECK(r.link_peak[5] == 11 * 4096);  // at the last slot 20 have joined and 9 have begun; the one that begins now still counts
}

TEST(packet_ack_waits_for_the_packet_in_service) {
  Net net = star(2);
  send(net, 0, 1, 4096);
  send(net, 1, 0, 2 * 4096, 1.9e-6);  // 1's second packet is in service when its ACK is due at 2.65536 us: from 2.22768 to 2.55536
  const Result r = go(net);
  NEAR(r.delivered[0], 2.65536e-6);
  NEAR(r.acked[0], 3.88304e-6 + kFrame + kUs);  // at the switch that packet is ahead of it again: 3.55536 to 3.88304
  Net busy = star(2);
  send(busy, 0, 1, 4096);
  send(busy, 1, 0, 3 * 4096, 1.9e-6);  // the third starts at 2.55536 and ends at 2.88304
  NEAR(go(busy).acked[0], 4.21072e-6 + kFrame + kUs);
}

TEST(packet_lane_rate_and_delay) {
  Net net = star(2);
  send(net, 0, 1, 10 * 4096);
  net.lane_rate[0] = kRate / 4;
  net.delay[0] = 2e-6;
  NEAR(go(net).delivered[0], 2e-6 + 9 * 4 * kPacket + 2 * (kPacket + kUs));
}

TEST(packet_slices_wait_for_other_lanes) {
  Net net = star(3);
  send(net, 0, 1, 4 * 8192, 0, 8192);
  send(net, 1, 2, 4 * 8192, 0, 8192);  // forwards slice by slice
  net.after(0, 0);
  const Result r = go(net);
  const double first = 3 * kPacket + 2 * kUs;  // slice 0 at host 1
  NEAR(r.delivered[0], first + 6 * kPacket);
  // host 1's ACKs for packet 2, which opens its gate, to packet 8 go before its own last packet
  NEAR(r.delivered[1] - r.delivered[0], first + 7 * kFrame);
}

TEST(packet_window_of_one_slice) {
  Net net = star(2);
  send(net, 0, 1, 3 * 4096, 0, 4096);
  net.window[0] = 1;
  const double trip = 2 * (kPacket + kUs) + 2 * (kFrame + kUs);
  NEAR(go(net).acked[0], 3 * trip);
}

TEST(packet_queue_pairs_take_turns) {
  Net net = star(3);
  send(net, 0, 1, 10 * 4096);
  send(net, 0, 2, 10 * 4096);
  const Result r = go(net);
  NEAR(r.delivered[0], 18 * kPacket + kUs + kPacket + kUs);  // 0 0 1 0 1 ... 0 1 1: it began before 1 was there
  NEAR(r.delivered[1], 20 * kPacket + kUs + kPacket + kUs);
}

TEST(packet_pause_holds_the_sender) {
  Net net = star(3);
  send(net, 0, 2, 200 * 4096);
  send(net, 1, 2, 200 * 4096);
  Options o;
  o.xoff = 10 * 4096;
  o.xon = 8 * 4096;
  const Result r = go(net, o);
  CHECK(r.stats.pauses > 0 && r.stats.drops == 0 && r.link_paused[0] > 0);
  NEAR(std::max(r.delivered[0], r.delivered[1]), kPacket + kUs + 400 * kPacket + kUs);  // never idle
  // what each ingress can hold: threshold, then a cable's worth of what was under way, packets in service at both ends
  CHECK(r.link_peak[5] <= 2 * (10 * 4096 + 2 * 12500 + 3 * 4096));
}

TEST(packet_marks_above_kmax) {
  Net net = star(3);
  send(net, 0, 2, 100 * 4096);
  send(net, 1, 2, 100 * 4096);
  Options o;
  o.ecn = {{0, 10 * 4096, 10 * 4096, 1}};
  const Result r = go(net, o);
  // packet n of 200 starts at n slots, when 2 (n + 1) have joined (none at that moment itself counts) until all have: 2 n - n
  // behind it
  CHECK(r.stats.marks > 100 && r.stats.marks < 200);
  o.ecn = {{0, 1e9, 1e9, 1}};
  CHECK(go(net, o).stats.marks == 0);
}

TEST(packet_notifications_are_paced_per_port_or_per_pair) {
  Net net = star(4);
  send(net, 0, 2, 100 * 4096);
  send(net, 1, 2, 100 * 4096);
  send(net, 0, 3, 100 * 4096);
  Options o;
  o.ecn = {{0, 0, 0, 1}};  // all but the last packet of a queue
  o.control_name = "dcqcn";
  const auto count = [&](double interval, double per_port) {
    o.control_settings = {{"min_factor", 1.0}, {"cnp_interval", interval}, {"cnp_per_port", per_port}};  // no cuts
    return go(net, o).stats;
  };
  // Lanes 0 and 2 take turns at host 0, so host 3's port never has a packet behind another: only host 2's is marked.
  CHECK(count(1.0, 1).notifications == 1);
  CHECK(count(1.0, 0).notifications == 2);
  const Stats often = count(4e-6, 1);  // marked packets end 327.68 ns apart: one in 13 is 4 us after the one before
  CHECK(often.marks > 90 && often.notifications == (often.marks + 12) / 13);
}

TEST(packet_lossy_recovers) {
  Net net = star(5);
  for (int i = 0; i < 4; ++i) send(net, i, 4, 100 * 4096);
  for (const Recovery recovery : {Recovery::kGoBackN, Recovery::kSelective}) {
    Options o;
    o.loss = Loss::kDrop;
    o.recovery = recovery;
    o.buffer = 64 * 4096;
    o.alpha = 1;
    o.timeouts = {1e-3};
    const Result r = go(net, o);
    CHECK(r.stats.drops > 0 && r.stats.retransmits > 0 && r.stats.pauses == 0);
    for (int i = 0; i < 4; ++i) CHECK(r.delivered[i] > 0);
    CHECK(r.link_peak[9] <= 33 * 4096);  // alpha 1: half of the buffer, and the packet that crosses
  }
}

TEST(packet_selective_repeats_only_what_was_lost) {
  Net net = star(2);
  send(net, 0, 1, 1000 * 4096);
  Options o;
  o.recovery = Recovery::kSelective;
  o.timeouts = {1e-4};
  Faults f;
  f.loss = {0.01, 0, 0, 0};
  const Result r = go(net, o, f);
  CHECK(r.stats.losses > 2 && r.stats.losses < 30);
  CHECK(r.stats.retransmits >= r.stats.losses && r.stats.retransmits <= 2 * r.stats.losses);
  o.recovery = Recovery::kGoBackN;
  CHECK(go(net, o, f).stats.retransmits > 3 * r.stats.retransmits);
}

TEST(packet_loss_of_everything_gives_up) {
  Net net = star(2);
  send(net, 0, 1, 4096);
  Options o;
  o.retries = 3;
  Faults f;
  f.loss = {1, 0, 0, 0};
  THROWS(go(net, o, f), "gave up after 3 timeouts");
}

TEST(packet_credits_hold_the_sender) {
  Net net = star(3);
  send(net, 0, 2, 200 * 4096);
  send(net, 1, 2, 200 * 4096);
  Options o;
  o.loss = Loss::kCredits;
  o.credit = 16 * 4096;
  const Result r = go(net, o);
  CHECK(r.stats.drops == 0 && r.stats.pauses == 0 && r.link_peak[5] <= 2 * 16 * 4096);
  NEAR(std::max(r.delivered[0], r.delivered[1]), kPacket + kUs + 400 * kPacket + kUs);
  o.credit = 4096;
  THROWS(go(net, o), "at least four packets");
}

TEST(packet_flap_loses_and_recovers) {
  Net net = star(2);
  send(net, 0, 1, 1000 * 4096);
  Options o;
  o.timeouts = {100e-6};
  Faults f;
  f.flaps = {{50e-6, 3, false}, {80e-6, 2, true}};  // either link names the cable
  const Result r = go(net, o, f);
  CHECK(r.stats.losses > 0 && r.delivered[0] > 1000 * kPacket + 30e-6);
  CHECK(r.stats.retransmits > 0);
}

TEST(packet_detour) {
  Net net;
  net.host();
  net.host();
  const int a = net.node(NodeKind::kSwitch), b = net.node(NodeKind::kSwitch);
  net.cable(0, a, kRate, kUs);
  net.cable(a, 1, kRate, kUs);  // links 2, 3
  net.cable(a, b, kRate, kUs);
  net.cable(b, 1, kRate, kUs);
  net.lane(0, 1, 1000 * 4096, {0, 2});
  net.path_links.insert(net.path_links.end(), {0, 4, 6});
  net.path_start.push_back(static_cast<std::int64_t>(net.path_links.size()));
  Options o;
  o.timeouts = {100e-6};
  Faults f;
  f.flaps = {{50e-6, 2, false}};
  f.detours = {{60e-6, 0, 1}};
  const Result r = go(net, o, f);
  CHECK(r.delivered[0] > 0 && r.link_data[6] > 0);
}

TEST(packet_deadlock_is_named) {
  // three switches in a ring, each with a host, all flows two switches on: every buffer waits for the next
  Net net;
  for (int i = 0; i < 3; ++i) net.host();
  for (int i = 0; i < 3; ++i) net.node(NodeKind::kSwitch);
  for (int i = 0; i < 3; ++i) net.cable(i, 3 + i, kRate, kUs);                // 2 i up, 2 i + 1 down
  for (int i = 0; i < 3; ++i) net.cable(3 + i, 3 + (i + 1) % 3, kRate, kUs);  // 6 + 2 i onwards
  for (int n = 0; n < 2; ++n)
    for (int i = 0; i < 3; ++i)
      net.lane(i, (i + 2) % 3, 4000 * 4096, {2 * i, 6 + 2 * i, 6 + 2 * ((i + 1) % 3), 2 * ((i + 2) % 3) + 1});
  Options o;
  o.xoff = 4 * 4096;
  o.xon = 2 * 4096;
  o.timeouts = {1e-3};
  o.retries = 2;
  THROWS(go(net, o), "in a circle of nodes");
}

TEST(packet_bad_input) {
  Net net = star(2);
  send(net, 0, 1, 4096);
  net.dep_lane = {5};
  net.dep_lead = {0};
  net.dep_start.back() = 1;
  THROWS(go(net), "names lane 5 of 1");
  Net broken = star(2);
  broken.lane(0, 1, 10, {0, 2});
  THROWS(go(broken), "does not begin where");
  Net oneway;
  oneway.host();
  oneway.host();
  oneway.link(0, 1, kRate, kUs);
  oneway.lane(0, 1, 10, {0});
  THROWS(go(oneway), "no way back");
  Net waits = star(2);
  send(waits, 0, 1, 4096);
  send(waits, 1, 0, 4096);
  waits.after(0, wt::net::kAll);
  waits.dep_lane.insert(waits.dep_lane.begin(), 1);
  waits.dep_lead.insert(waits.dep_lead.begin(), wt::net::kAll);
  waits.dep_lead[1] = wt::net::kAll;
  waits.dep_start = {0, 1, 2};
  THROWS(go(waits), "waits for lanes that do not deliver");
}

TEST(packet_stops_when_told) {
  Net net = star(2);
  send(net, 0, 1, 2000000000);
  send(net, 1, 0, 4096);
  for (const int threads : {1, 2}) {
    Options o;
    o.threads = threads;
    int calls = 0;
    const Result r =
        run(net.graph(), net.paths(), net.lanes(), o, {}, [&](double done) { return done >= 0 && done < 0.9 && ++calls == 2; });
    CHECK(r.stopped && std::isnan(r.delivered[0]) && std::isnan(r.acked[0]));
    CHECK(r.delivered[1] > 0 && r.acked[1] > r.delivered[1] && r.acked[1] < 1e-4);
  }
}

// Two lanes of 1 B/ns side by side: their second packets leave at 4 us, one behind the other, and take two hops of 320 ns and 1 us.
TEST(packet_hold_keeps_slices_until_their_time) {
  Net net = star(3);
  for (const int to : {1, 2}) {
    send(net, 0, to, 8000);
    net.lane_rate.back() = 1e9;
  }
  Options o;
  o.mtu = 4000;
  const Result bare = go(net, o);
  NEAR(bare.delivered[0], 6.64e-6);
  NEAR(bare.delivered[1], 6.96e-6);
  net.hold = {0.5e-6, 1e-6};  // counted from when the rate has sent them, at 8 us for both
  const Result held = go(net, o);
  CHECK(std::abs(held.delivered[0] - 8.5e-6) < 1.1e-9 && std::abs(held.delivered[1] - 9e-6) < 1.1e-9);
  NEAR(held.acked[0], bare.acked[0]);
  NEAR(held.end, held.delivered[1]);
}

// What arrives later than its hold is delivered as it arrives; what waits for a slice starts when that is delivered.
TEST(packet_hold_is_a_least) {
  Net net = star(2);
  send(net, 0, 1, 4000);
  send(net, 1, 0, 4000);
  net.after(0, wt::net::kAll);
  Options o;
  o.mtu = 4000;
  for (const double hold : {1e-6, 6e-6}) {
    net.hold = {hold, 0.0};
    const Result r = go(net, o);
    const double first = std::max(hold, 2.64e-6), behind_ack = hold < 2.64e-6 ? kFrame : 0.0;
    CHECK(std::abs(r.delivered[0] - first) < 1.1e-9);
    NEAR(r.delivered[1] - r.delivered[0], 2.64e-6 + behind_ack);
  }
  net.hold = {1e-6};
  THROWS(go(net), "1 holds of 2 lanes");
}
