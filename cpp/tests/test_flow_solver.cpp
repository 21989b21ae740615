// Hand-computed rates of the max-min solver, and what an incremental solve looks at.
#include "net/flow/solver.h"

#include <vector>

#include "tests/check.h"

using namespace wt::net::flow;

namespace {

constexpr double kNoBound = std::numeric_limits<double>::infinity();

// Rows over links with demand 1, one unknown a row.
struct Net {
  std::vector<std::int64_t> start{0};
  std::vector<std::int32_t> links;
  std::vector<double> demand, capacity;
  Unknowns unknowns;

  Net& row(std::vector<std::int32_t> on, double bound = kNoBound, double each = 1.0) {
    links.insert(links.end(), on.begin(), on.end());
    demand.insert(demand.end(), on.size(), each);
    start.push_back(static_cast<std::int64_t>(links.size()));
    unknowns.row.push_back(static_cast<std::int32_t>(unknowns.row.size()));
    unknowns.bound.push_back(bound);
    return *this;
  }
  Solver solver(std::vector<std::uint8_t> passive = {}) const {
    return Solver(Demands{start, links, demand}, unknowns, capacity, std::move(passive));
  }
};

void all_in(Solver& s, std::int32_t n) {
  for (std::int32_t i = 0; i < n; ++i) s.set_weight(i, 1.0);
  s.solve();
}

}  // namespace

TEST(flow_the_classic_three) {
  // A over both links, B over the first (capacity 1), C over the second (capacity 2): A = B = 1/2, C = 3/2
  Net net;
  net.capacity = {1.0, 2.0};
  net.row({0, 1}).row({0}).row({1});
  Solver s = net.solver();
  all_in(s, 3);
  NEAR(s.level(0), 0.5);
  NEAR(s.level(1), 0.5);
  NEAR(s.level(2), 1.5);
  CHECK(s.stopped_by(0) == 0 && s.stopped_by(2) == 1);
  NEAR(s.load(1), 2.0);
  CHECK(s.certified());
}

TEST(flow_weights_bounds_and_demands) {
  // weights 1 and 3 share a link of 8: 2 and 6; with a bound of level 1 on the second, 5 and 3
  Net net;
  net.capacity = {8.0};
  net.row({0}).row({0});
  Solver s = net.solver();
  s.set_weight(0, 1.0);
  s.set_weight(1, 3.0);
  s.solve();
  NEAR(s.level(0), 2.0);
  NEAR(s.level(1) * 3.0, 6.0);

  Net bound;
  bound.capacity = {8.0};
  bound.row({0}).row({0}, 1.0);
  Solver t = bound.solver();
  t.set_weight(0, 1.0);
  t.set_weight(1, 3.0);
  t.solve();
  NEAR(t.level(0), 5.0);
  NEAR(t.level(1), 1.0);
  CHECK(t.stopped_by(1) == kOwnBound);

  // one unit of the first puts 3 bytes on the link, of the second 1: equal levels of 2
  Net coupled;
  coupled.capacity = {8.0};
  coupled.row({0}, kNoBound, 3.0).row({0});
  Solver u = coupled.solver();
  all_in(u, 2);
  NEAR(u.level(0), 2.0);
  NEAR(u.level(1), 2.0);
}

TEST(flow_a_link_twice_counts_twice) {
  Net net;
  net.capacity = {6.0};
  net.row({0, 0}).row({0});
  Solver s = net.solver();
  all_in(s, 2);
  NEAR(s.level(0), 2.0);
  NEAR(s.load(0), 6.0);
  s.set_weight(0, 0.0);
  s.solve();
  NEAR(s.level(1), 6.0);
}

TEST(flow_departures_lift_and_arrivals_lower) {
  // a chain: links 0..3 of capacity 1, unknown i on links i and i+1, unknowns 3 and 4 alone on links 0 and 3
  Net net;
  net.capacity = {1.0, 2.0, 4.0, 8.0};
  net.row({0, 1}).row({1, 2}).row({2, 3}).row({0}).row({3});
  Solver s = net.solver();
  all_in(s, 5);  // 0: .5, 1: 1.5, 2: 2.5, 3: .5, 4: 5.5
  NEAR(s.level(0), 0.5);
  NEAR(s.level(1), 1.5);
  NEAR(s.level(2), 2.5);
  NEAR(s.level(4), 5.5);
  s.set_weight(3, 0.0);  // 0 rises to 1, so 1 falls to 1, 2 rises to 3, 4 falls to 5
  s.solve();
  NEAR(s.level(0), 1.0);
  NEAR(s.level(1), 1.0);
  NEAR(s.level(2), 3.0);
  NEAR(s.level(4), 5.0);
  CHECK(s.certified());
  s.set_weight(3, 1.0);
  s.solve();
  NEAR(s.level(0), 0.5);
  NEAR(s.level(1), 1.5);
  NEAR(s.level(2), 2.5);
  NEAR(s.level(3), 0.5);
  NEAR(s.level(4), 5.5);
  CHECK(s.certified());
}

TEST(flow_the_end_of_the_fastest_disturbs_nobody) {
  // four on a link of 4, one of which crosses a link of 1: the three others have 1 each; a fifth alone on a link of 9
  Net net;
  net.capacity = {4.0, 0.5, 9.0};
  net.row({0, 1}).row({0}).row({0}).row({0, 2}).row({2});
  Solver s = net.solver();
  all_in(s, 5);
  NEAR(s.level(4), 9.0 - 3.5 / 3.0);
  s.set_weight(4, 0.0);
  s.solve();
  CHECK(s.moved().size() == 1);  // the one that left
  NEAR(s.level(3), 3.5 / 3.0);
  CHECK(s.stats().incremental == 1);
}

TEST(flow_capacity_changes) {
  Net net;
  net.capacity = {4.0, 10.0};
  net.row({0}).row({0, 1}).row({1});
  Solver s = net.solver();
  all_in(s, 3);  // 2, 2, 8
  NEAR(s.level(2), 8.0);
  s.set_capacity(0, 0.0);
  s.solve();
  NEAR(s.level(0), 0.0);
  NEAR(s.level(1), 0.0);
  NEAR(s.level(2), 10.0);
  CHECK(s.stopped_by(0) == 0);
  s.set_capacity(0, 6.0);
  s.solve();
  NEAR(s.level(0), 3.0);
  NEAR(s.level(1), 3.0);
  NEAR(s.level(2), 7.0);
  CHECK(s.certified());
}

TEST(flow_passive_links_are_only_measured) {
  Net net;
  net.capacity = {4.0, 5.0};
  net.row({0, 1}).row({0, 1});
  Solver s = net.solver({0, 1});
  all_in(s, 2);
  NEAR(s.level(0), 2.0);
  NEAR(s.load(1), 4.0);
  s.at(3.0);
  s.settle_meter();
  NEAR(s.meter().links()[1].bytes, 12.0);
  NEAR(s.meter().links()[1].full, 0.0);
  NEAR(s.meter().links()[0].full, 3.0);
}
