// Hand-computed runs of fluids, and what is refused.
#include "net/flow/run.h"

#include <cmath>
#include <vector>

#include "net/flow/compress.h"
#include "tests/check.h"

using namespace wt::net::flow;

namespace {

struct Case {
  std::vector<double> capacity;
  std::vector<std::int64_t> start{0};
  std::vector<std::int32_t> links;
  std::vector<double> demand, begin, size, weight, bound, latency, delay;
  std::vector<std::int64_t> dep_start;
  std::vector<std::int32_t> deps;
  std::vector<double> change_time, change_capacity;
  std::vector<std::int32_t> change_link;

  Case& flow(double bytes, std::vector<std::int32_t> on, double at = 0.0) {
    links.insert(links.end(), on.begin(), on.end());
    start.push_back(static_cast<std::int64_t>(links.size()));
    begin.push_back(at);
    size.push_back(bytes);
    return *this;
  }
  Case& change(double time, std::int32_t link, double to) {
    change_time.push_back(time);
    change_link.push_back(link);
    change_capacity.push_back(to);
    return *this;
  }
  Demands demands() const { return {start, links, demand}; }
  Outcome run(Options options = {}) const {
    Variables v;
    v.begin = begin;
    v.size = size;
    v.weight = weight;
    v.bound = bound;
    v.latency = latency;
    v.delay = delay;
    v.dep_start = dep_start;
    v.deps = deps;
    return wt::net::flow::run(capacity, demands(), v, Changes{change_time, change_link, change_capacity}, options);
  }
};

}  // namespace

TEST(flow_run_shares_and_hands_over) {
  // two of 6 bytes share a link of 2: both end at 6; one of 2 bytes beside one of 6: 2, then the other goes alone, 4
  Case one;
  one.capacity = {2.0};
  one.flow(2.0, {0}).flow(6.0, {0});
  const Outcome out = one.run();
  NEAR(out.end[0], 2.0);
  NEAR(out.end[1], 4.0);
  NEAR(out.use.bytes[0], 8.0);
  NEAR(out.use.busy[0], 4.0);
  NEAR(out.use.full[0], 4.0);
  CHECK(out.events == 3);
}

TEST(flow_run_incast_takes_as_long_as_its_bytes) {
  Case incast;
  incast.capacity.assign(32, 10.0);
  for (std::int32_t i = 0; i < 31; ++i) incast.flow(7.0, {i, 31});
  const Outcome out = incast.run();
  for (const double end : out.end) NEAR(end, 31 * 7.0 / 10.0);
  CHECK(out.solver.solves == 2);  // one to begin, one as all end together
}

TEST(flow_run_late_arrivals_and_members_of_one_unknown) {
  // equal paths: 10 bytes from 0, 3 bytes from 1, on a link of 2. Alone until 1 (2 moved), then 1 each: the second ends at 4,
  // the first has 10 - 2 - 3 left: 4 + 5/2
  Case late;
  late.capacity = {2.0};
  late.flow(10.0, {0}).flow(3.0, {0}, 1.0);
  const Outcome out = late.run();
  NEAR(out.end[1], 4.0);
  NEAR(out.end[0], 6.5);
  CHECK(out.unknowns == 1);
}

TEST(flow_run_weights_and_bounds) {
  Case c;
  c.capacity = {8.0};
  c.flow(6.0, {0}).flow(6.0, {0});
  c.weight = {1.0, 3.0};
  c.bound = {std::numeric_limits<double>::infinity(), 3.0};
  const Outcome out = c.run();  // 5 and 3; the first ends at 6/5, the second keeps its bound: 2
  NEAR(out.end[0], 1.2);
  NEAR(out.end[1], 2.0);
}

TEST(flow_run_zero_bytes_and_empty_paths_end_at_once) {
  Case c;
  c.capacity = {1.0};
  c.flow(0.0, {0}, 2.0).flow(5.0, {}, 3.0).flow(4.0, {});
  const double inf = std::numeric_limits<double>::infinity();
  c.bound = {inf, inf, 2.0};
  const Outcome out = c.run();
  NEAR(out.end[0], 2.0);
  NEAR(out.end[1], 3.0);
  NEAR(out.end[2], 2.0);  // its own bound
  NEAR(out.use.bytes[0], 0.0);
}

TEST(flow_run_dependencies) {
  // 1 starts a delay of 0.5 after 0 was delivered (end 2, latency 1), 2 after both of them but not before 9
  Case c;
  c.capacity = {2.0};
  c.flow(4.0, {0}).flow(2.0, {0}).flow(2.0, {0}, 9.0);
  c.latency = {1.0, 0.0, 0.0};
  c.delay = {0.0, 0.5, 0.0};
  c.dep_start = {0, 0, 1, 3};
  c.deps = {0, 0, 1};
  const Outcome out = c.run();
  NEAR(out.start[1], 3.5);
  NEAR(out.end[1], 4.5);
  NEAR(out.start[2], 9.0);
  NEAR(out.last, 10.0);
  c.dep_start = {0, 1, 2, 3};
  c.deps = {2, 0, 1};
  THROWS(c.run(), "cycle: variable");
}

TEST(flow_run_a_flapping_link) {
  Case c;
  c.capacity = {2.0, 4.0};
  c.flow(6.0, {0}).flow(6.0, {1}).change(1.0, 0, 0.0).change(5.0, 0, 4.0);
  const Outcome out = c.run();
  NEAR(out.end[0], 6.0);  // 2 moved by 1, nothing until 5, 4 left
  NEAR(out.end[1], 1.5);
  NEAR(out.use.busy[0], 2.0);
  c.change_capacity[1] = 0.0;
  THROWS(c.run(), "variable 0 can never finish: link 0 has no capacity from");
  Case dead;
  dead.capacity = {0.0};
  dead.flow(1.0, {0});
  THROWS(dead.run(), "variable 0 can never finish: link 0 has no capacity");
}

TEST(flow_run_coupled_lanes_go_at_the_pace_of_the_tightest) {
  // a ring of four with one slow link: 3 units, each one byte on every link
  Case c;
  c.capacity = {4.0, 4.0, 1.0, 4.0, 8.0};
  c.flow(3.0, {0, 1, 2, 3}).flow(9.0, {0});
  const Outcome out = c.run();
  NEAR(out.end[0], 3.0);
  NEAR(out.end[1], 3.0);
  CHECK(out.constraints == 3);  // link 0; links 1 and 3 alike; link 2
}

TEST(flow_run_tolerance_joins_ends_and_keeps_bytes) {
  Case c;
  c.capacity = {10.0};
  for (int i = 0; i < 50; ++i) c.flow(100.0 + 0.1 * i, {0});
  Options wide;
  wide.tolerance = 0.1;
  const Outcome exact = c.run(), joined = c.run(wide);
  CHECK(joined.solver.solves < exact.solver.solves / 10);
  double bytes = 0.0;
  for (std::size_t i = 0; i < c.size.size(); ++i) {
    bytes += c.size[i];
    CHECK(std::abs(joined.end[i] - exact.end[i]) <= 0.1 * exact.end[i]);
  }
  CHECK(std::abs(joined.use.bytes[0] - bytes) < 1e-9 * bytes);
}

TEST(flow_run_refuses) {
  Case c;
  c.capacity = {1.0};
  c.flow(1.0, {0});
  const auto with = [&](auto&& edit) {
    Case bad = c;
    edit(bad);
    return bad.run();
  };
  THROWS(with([](Case& b) { b.size[0] = -1.0; }), "size[0] is -1");
  THROWS(with([](Case& b) { b.begin[0] = std::nan(""); }), "begin[0] is nan");
  THROWS(with([](Case& b) { b.links[0] = 1; }), "row_links[0] is 1; there are links 0 to 0");
  THROWS(with([](Case& b) { b.capacity[0] = -2.0; }), "capacity[0] is -2");
  THROWS(with([](Case& b) { b.weight = {0.0}; }), "weight[0] is 0");
  THROWS(with([](Case& b) { b.bound = {0.0}; }), "bound[0] is 0");
  THROWS(with([](Case& b) { b.demand = {0.0}; }), "demand[0] is 0");
  THROWS(with([](Case& b) { b.change(1.0, 3, 1.0); }), "change_link[0] is 3");
  Options small;
  small.memory = 10.0;
  THROWS(c.run(small), "GiB of memory for 1 variables");
}

TEST(flow_compress_merges_and_drops) {
  // rows over links: 0 {0,1,2,3}, 1 {0,1,4}; links 0 and 1 alike, 2 and 3 alike but for their capacity, 4 alone
  const std::vector<std::int64_t> start{0, 4, 7};
  const std::vector<std::int32_t> links{0, 1, 2, 3, 0, 1, 4};
  const std::vector<double> capacity{4.0, 4.0, 4.0, 9.0, 4.0, 1.0};
  const Compressed c = compress(capacity, Demands{start, links, {}}, {});
  CHECK((c.kind == std::vector<std::int32_t>{0, 0, 1, 2, 3, -1}));
  CHECK((c.passive == std::vector<std::uint8_t>{0, 1, 1, 1}));  // whoever loads the others loads link 0 as much
  const std::vector<double> time{1.0}, to{0.0};
  const std::vector<std::int32_t> changing{1};
  const Compressed apart = compress(capacity, Demands{start, links, {}}, Changes{time, changing, to});
  CHECK(apart.kind[0] != apart.kind[1] && apart.passive[static_cast<std::size_t>(apart.kind[1])] == 0);
}
