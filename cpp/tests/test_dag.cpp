// Task graphs worked out by hand.
#include "dag/dag.h"

#include <cmath>
#include <span>
#include <vector>

#include "net/flow/network.h"
#include "tests/check.h"

using wt::dag::ChannelKind;
using wt::dag::Model;
using wt::dag::Outcome;

namespace {

// Columns that grow task by task.
struct DagBuilder {
  std::vector<double> seconds, tail;
  std::vector<std::int32_t> lane, release, channel, slot;
  std::vector<std::int64_t> priority, dep_start{0}, deps, key;
  std::vector<std::uint8_t> ordered, kind;
  std::vector<std::int32_t> width, slots;

  std::int32_t add_lane(bool in_order, std::int32_t wide = 1) {
    ordered.push_back(in_order ? 1 : 0);
    width.push_back(wide);
    return static_cast<std::int32_t>(ordered.size()) - 1;
  }
  std::int32_t add_channel(ChannelKind what, std::int32_t participants) {
    kind.push_back(static_cast<std::uint8_t>(what));
    slots.push_back(participants);
    return static_cast<std::int32_t>(kind.size()) - 1;
  }
  std::int64_t add(double s, std::int32_t on, std::vector<std::int64_t> after = {}, std::int64_t first = 0, std::int32_t meets = -1,
                   std::int32_t at = 0, std::int64_t named = -1) {
    seconds.push_back(s);
    tail.push_back(0.0);
    lane.push_back(on);
    release.push_back(on);
    priority.push_back(first);
    deps.insert(deps.end(), after.begin(), after.end());
    dep_start.push_back(static_cast<std::int64_t>(deps.size()));
    channel.push_back(meets);
    slot.push_back(at);
    key.push_back(named);
    return static_cast<std::int64_t>(seconds.size()) - 1;
  }
  [[nodiscard]] Outcome run(wt::net::Network* network = nullptr, const Model& model = {}) const {
    return wt::dag::run({seconds, tail, lane, release, priority, dep_start, deps, channel, slot, key}, {ordered, width},
                        {kind, slots}, network, model, {});
  }
};

}  // namespace

TEST(dag_ordered_lane_keeps_the_order) {
  DagBuilder b;
  const auto stream = b.add_lane(true), other = b.add_lane(true);
  const auto slow = b.add(3.0, other);
  b.add(1.0, stream, {slow});  // ready at 3
  b.add(2.0, stream);          // ready at 0, but behind the one before
  const Outcome out = b.run();
  NEAR(out.start[1], 3.0);
  NEAR(out.start[2], 4.0);
  NEAR(out.end[2], 6.0);
  CHECK(out.cause[2] == 1 && out.cause[1] == 0 && out.cause[0] == -1);
  CHECK(out.done == 3);
}

TEST(dag_free_lane_serves_the_least_priority_first) {
  DagBuilder b;
  const auto lane = b.add_lane(false);
  b.add(1.0, lane, {}, 5);
  b.add(1.0, lane, {}, 7);
  b.add(1.0, lane, {}, 6);
  const Outcome out = b.run();
  NEAR(out.start[0], 0.0);
  NEAR(out.start[2], 1.0);
  NEAR(out.start[1], 2.0);
}

TEST(dag_wide_lane_serves_two_at_once) {
  DagBuilder b;
  const auto lane = b.add_lane(false, 2);
  for (int i = 0; i < 3; ++i) b.add(2.0, lane);
  const Outcome out = b.run();
  NEAR(out.start[1], 0.0);
  NEAR(out.start[2], 2.0);
}

TEST(dag_chain_holds_its_lane) {
  DagBuilder b;
  const auto lane = b.add_lane(false);
  const auto first = b.add(1.0, lane);
  b.release[0] = -1;
  b.add(2.0, -1, {first});
  b.release[1] = lane;  // the chain gives the lane back at 3
  b.add(1.0, lane);
  const Outcome out = b.run();
  NEAR(out.end[1], 3.0);
  NEAR(out.start[2], 3.0);
}

TEST(dag_tail_frees_the_lane_before_the_end) {
  DagBuilder b;
  const auto link = b.add_lane(false);
  const auto first = b.add(1.0, link);
  b.tail[0] = 4.0;
  b.add(1.0, link);
  b.add(1.0, -1, {first});
  const Outcome out = b.run();
  NEAR(out.start[1], 1.0);
  NEAR(out.end[0], 5.0);
  NEAR(out.start[2], 5.0);
}

TEST(dag_collective_waits_for_all) {
  DagBuilder b;
  const auto a = b.add_lane(true), c = b.add_lane(true);
  const auto group = b.add_channel(ChannelKind::kCollective, 2);
  b.add(1.0, a);
  b.add(4.0, c);
  b.add(2.0, a, {}, 0, group, 0);
  b.add(3.0, c, {}, 0, group, 1);
  const Outcome out = b.run();
  NEAR(out.start[2], 1.0);
  NEAR(out.begin[2], 4.0);
  NEAR(out.end[2], 7.0);
  NEAR(out.end[3], 7.0);
  CHECK(out.last[2] == 3);
}

TEST(dag_posts_meet_in_order) {
  DagBuilder b;
  const auto group = b.add_channel(ChannelKind::kCollective, 2);
  const auto a = b.add_lane(true);
  b.add(1.0, a, {}, 0, group, 0);
  b.add(1.0, a, {}, 0, group, 0);
  const auto first = b.add(1.0, -1, {}, 0, group, 1);
  const auto later = b.add(5.0, -1, {first});
  b.add(1.0, -1, {later}, 0, group, 1);
  const Outcome out = b.run();
  NEAR(out.end[0], 1.0);
  NEAR(out.start[1], 1.0);
  NEAR(out.begin[1], 6.0);
  NEAR(out.end[1], 7.0);
}

TEST(dag_eager_and_rendezvous_sends) {
  DagBuilder b;
  const auto eager = b.add_channel(ChannelKind::kEager, 2), meet = b.add_channel(ChannelKind::kRendezvous, 2);
  const auto slow = b.add(10.0, -1);
  b.add(2.0, -1, {}, 0, eager, 0);
  b.add(2.0, -1, {slow}, 0, eager, 1);
  b.add(2.0, -1, {}, 0, meet, 0);
  b.add(2.0, -1, {slow}, 0, meet, 1);
  const Outcome out = b.run();
  NEAR(out.end[1], 2.0);
  NEAR(out.end[2], 10.0);  // the message has been there since 2
  NEAR(out.end[3], 12.0);
  NEAR(out.end[4], 12.0);
}

TEST(dag_port_serves_one_after_the_other) {
  DagBuilder b;
  const auto port = b.add_channel(ChannelKind::kPort, 1);
  b.add(2.0, -1, {}, 0, port, 0);
  b.add(3.0, -1, {}, 0, port, 0);
  const Outcome out = b.run();
  NEAR(out.end[0], 2.0);
  NEAR(out.end[1], 5.0);
}

TEST(dag_model_gives_each_participant_its_end) {
  DagBuilder b;
  const auto group = b.add_channel(ChannelKind::kModel, 2);
  b.add(0.0, -1, {b.add(1.0, -1)}, 0, group, 0);
  b.add(0.0, -1, {}, 0, group, 1);
  const Model later = [](std::int32_t, std::int64_t, std::span<const double> posted, std::span<double> end) {
    end[0] = posted[0] + 5.0;
    end[1] = posted[0] + 6.0;
  };
  const Outcome out = b.run(nullptr, later);
  NEAR(out.end[1], 6.0);
  NEAR(out.end[2], 7.0);
}

TEST(dag_meetings_share_links_of_a_network) {
  wt::net::flow::PlanTable table;
  table.capacity = {2.0};
  table.row_start = {0, 1};
  table.row_links = {0};
  table.demand = {1.0};
  table.plan_start = {0, 1};
  table.size = {4.0};
  table.key = {9};
  table.key_plan = {0};
  wt::net::flow::FlowNetwork network(table);
  DagBuilder b;
  const auto one = b.add_channel(ChannelKind::kRendezvous, 2), two = b.add_channel(ChannelKind::kRendezvous, 2);
  b.add(2.0, -1, {}, 0, one, 0, 9);
  b.add(2.0, -1, {}, 0, one, 1, 9);
  b.add(2.0, -1, {}, 0, two, 0, 9);
  b.add(2.0, -1, {b.add(2.0, -1)}, 0, two, 1, 9);  // begins when the first is over
  const Outcome alone = b.run(&network);
  NEAR(alone.end[0], 2.0);
  NEAR(alone.end[2], 4.0);
  wt::net::flow::FlowNetwork again(table);
  b.seconds[3] = 1.0;
  const Outcome shared = b.run(&again);  // from 1 on both have 1 B/s: 2 left of the first, then 2 of the second at full rate
  NEAR(shared.end[0], 3.0);
  NEAR(shared.end[2], 4.0);
}

TEST(dag_what_cannot_run_has_no_times) {
  DagBuilder b;
  b.add(1.0, -1, {1});
  b.add(1.0, -1, {0});
  const auto group = b.add_channel(ChannelKind::kCollective, 2);
  b.add(1.0, -1, {}, 0, group, 0);
  b.add(1.0, -1);
  const Outcome out = b.run();
  CHECK(out.done == 1);
  CHECK(std::isnan(out.start[0]) && std::isnan(out.end[2]));
  NEAR(out.start[2], 0.0);
}

TEST(dag_refuses_wrong_columns) {
  DagBuilder b;
  b.add(-1.0, -1);
  THROWS(b.run(), "seconds is -1");
  DagBuilder c;
  c.add(1.0, 3);
  THROWS(c.run(), "lane is 3");
  DagBuilder d;
  d.add(1.0, -1, {4});
  THROWS(d.run(), "a dependency is 4");
  DagBuilder e;
  e.add(1.0, -1, {}, 0, e.add_channel(ChannelKind::kCollective, 2), 2);
  THROWS(e.run(), "slot is 2");
}
