// Plans that the exec core launches.
#include "net/flow/network.h"

#include <vector>

#include "tests/builder.h"
#include "tests/check.h"

using namespace wt::net::flow;
using wt::net::Flow;

namespace {

// Plan 0: 4 bytes on link 0; plan 1: 4 bytes on link 0 and 8 on link 1, coupled; plan 2: two plain flows, one of them later.
PlanTable table() {
  PlanTable t;
  t.capacity = {2.0, 4.0};
  t.row_start = {0, 1, 3, 4, 5};
  t.row_links = {0, 0, 1, 0, 1};
  t.demand = {1.0, 1.0, 2.0, 1.0, 1.0};
  t.plan_start = {0, 1, 2, 4};
  t.size = {4.0, 4.0, 2.0, 4.0};
  t.latency = {0.5, 0.0, 0.0, 0.0};
  t.delay = {0.0, 0.0, 0.0, 3.0};
  t.key = {100, 101, 102};
  t.key_plan = {0, 1, 2};
  return t;
}

std::vector<wt::net::Completion> drain(FlowNetwork& net) {
  std::vector<wt::net::Completion> out;
  while (net.next_event() < wt::kNever)
    if (const auto done = net.advance()) out.push_back(*done);
  return out;
}

}  // namespace

TEST(flow_network_launches_plans) {
  FlowNetwork net(table());
  NEAR(net.start(Flow{0, 7, 1.0, 2.5}).value(), 3.5);  // no plan: at once
  CHECK(!net.start(Flow{1, 100, 0.0, 0.0}));
  CHECK(!net.start(Flow{2, 101, 1.0, 0.0}));
  // 100 alone until 1 (2 of 4 moved), then 1 each: 100 ends at 3, delivered at 3.5; 101 has 2 left: 4
  const auto done = drain(net);
  CHECK(done.size() == 2);
  CHECK(done[0].id == 1 && done[1].id == 2);
  NEAR(done[0].end, 3.5);
  NEAR(done[1].end, 4.0);
  const PlanReport report = net.report();
  CHECK((report.starts == std::vector<std::int64_t>{1, 1, 0}));
  NEAR(report.total[1], 3.0);
  NEAR(report.alone[0], 2.5);
  NEAR(report.alone[1], 2.0);
  NEAR(report.alone[2], 4.0);  // the flow that begins at 3
  NEAR(report.use.bytes[0], 8.0);
  NEAR(report.use.bytes[1], 8.0);
  NEAR(report.use.busy[1], 3.0);
}

TEST(flow_network_one_plan_in_flight_many_times) {
  FlowNetwork net(table());
  for (std::int32_t i = 0; i < 3; ++i) CHECK(!net.start(Flow{i, 102, 0.0, 0.0}));
  const auto done = drain(net);
  CHECK(done.size() == 3);
  for (const auto& d : done) NEAR(d.end, 6.0);  // three of 4 bytes from 3 on, on a link of 4
  NEAR(net.report().longest[2], 6.0);
  CHECK(net.report().solver.solves == 2);  // one as all begin, one at 3; that nothing is in flight needs none
}

TEST(flow_network_waits_for_begins_beyond_its_clock) {
  FlowNetwork net(table());
  CHECK(!net.start(Flow{0, 101, 5.0, 0.0}));
  NEAR(net.next_event(), 5.0);
  const auto done = drain(net);
  NEAR(done[0].end, 7.0);
}

TEST(flow_network_under_the_exec_core) {
  // two pairs of ranks meet at once over one link: both transfers take twice their time alone; without a plan they would take 1
  using namespace wt::exec;
  Builder b;
  b.ranks = {{meet({{100, 1.0, 2}})}, {meet({{100, 1.0, 2}})}, {meet({{101, 1.0, 2}})}, {meet({{101, 1.0, 2}})}};
  FlowNetwork net(table());
  const Timeline t = wt::exec::run(b.build(), net);
  NEAR(t.rank_end[0], 4.5);
  NEAR(t.rank_end[3], 4.0);
}

TEST(flow_network_names_the_link_that_stops_it) {
  PlanTable t = table();
  t.change_time = {1.0};
  t.change_link = {1};
  t.change_capacity = {0.0};
  FlowNetwork net(std::move(t));
  CHECK(!net.start(Flow{0, 101, 0.0, 0.0}));
  THROWS(drain(net), "link 1 has no capacity from 1 s on");
}

TEST(flow_network_refuses) {
  PlanTable t = table();
  t.key = {100, 100, 102};
  THROWS(FlowNetwork(t), "key 100 occurs twice");
  t = table();
  t.key_plan = {0, 1, 3};
  THROWS(FlowNetwork(t), "key_plan[2] is 3");
  t = table();
  t.plan_start = {0, 1};
  THROWS(FlowNetwork(t), "plan_start");
}

// What was solved once is not solved again; ends and what the links carried are those of a network that solves each time, which one
// with bytes over time does. Links change their capacity twice on the way.
TEST(flow_network_remembers_rates) {
  PlanTable t = table();
  t.change_time = {21.0, 41.0};
  t.change_link = {0, 1};
  t.change_capacity = {1.5, 5.0};
  FlowNetwork remembers(t), solves(t, kTolerance, true);
  std::vector<wt::net::Completion> ends[2];
  int at = 0;
  for (FlowNetwork* net : {&remembers, &solves}) {
    std::int32_t id = 0;
    for (int round = 0; round < 40; ++round)
      for (const std::int64_t key : {100, 101, 102, 100})
        (void)net->start(Flow{id++, key, 8.0 * round + (key == 102 ? 0.5 : 0.25 * (round % 3)), 0.0});
    ends[at++] = drain(*net);
  }
  CHECK(ends[0].size() == 160 && ends[1].size() == 160);
  for (std::size_t i = 0; i < ends[0].size(); ++i) {
    CHECK(ends[0][i].id == ends[1][i].id);
    NEAR(ends[0][i].end, ends[1][i].end);
  }
  const PlanReport with = remembers.report(), without = solves.report();
  for (std::size_t l = 0; l < 2; ++l) {
    NEAR(with.use.bytes[l], without.use.bytes[l]);
    NEAR(with.use.busy[l], without.use.busy[l]);
    NEAR(with.use.full[l], without.use.full[l]);
  }
  CHECK(with.solver.solves * 3 < without.solver.solves);
}
