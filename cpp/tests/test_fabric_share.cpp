#include "fabric/spread.h"
#include "net/closed/share.h"
#include "tests/check.h"
#include "tests/fabric_builder.h"

namespace {

using namespace wt;
using fabric::GraphBuilder;
using fabric::NodeKind;

// Two hosts a leaf, two leaves, two spines, 1 GB/s everywhere. Links: 8 of the hosts, then leaf - spine cables.
GraphBuilder two_leaves() {
  GraphBuilder b;
  for (int i = 0; i < 4; ++i) b.endpoint_at(b.node(NodeKind::kHost));
  for (int i = 0; i < 4; ++i) b.node(NodeKind::kSwitch);
  for (int i = 0; i < 4; ++i) b.cable(i, 4 + i / 2);
  for (int leaf = 4; leaf < 6; ++leaf) {
    for (int spine = 6; spine < 8; ++spine) b.cable(leaf, spine);
  }
  return b;
}

// Seconds of flows that all cross one link of 1 GB/s.
std::vector<double> on_one_link(const std::vector<double>& bytes, const std::vector<double>& start) {
  GraphBuilder b;
  b.endpoint_at(b.node(NodeKind::kHost));
  b.endpoint_at(b.node(NodeKind::kHost));
  b.link(0, 1, 1e9, 0.0);
  std::vector<std::int64_t> starts{0};
  const std::vector<std::int32_t> links(bytes.size(), 0);
  for (std::size_t f = 0; f < bytes.size(); ++f) starts.push_back(starts.back() + 1);
  return net::share(b.view(), {starts, links}, bytes, start);
}

}  // namespace

TEST(closed_share_equal_and_unequal) {
  const auto even = on_one_link({1e9, 1e9}, {0.0, 0.0});
  NEAR(even[0], 2.0);
  NEAR(even[1], 2.0);
  const auto uneven = on_one_link({4e9, 1e9, 1e9}, {0.0, 0.0, 0.0});
  NEAR(uneven[0], 6.0);
  NEAR(uneven[1], 3.0);
}

TEST(closed_share_with_arrivals) {
  // 1 s alone, then half the rate each until the first has its 2 GB at 3 s; the second one has 2 of its 3 GB then
  const auto t = on_one_link({3e9, 2e9}, {0.0, 1.0});
  NEAR(t[0], 5.0);
  NEAR(t[1], 4.0);
  const auto apart = on_one_link({1e9, 1e9}, {5.0, 0.0});
  NEAR(apart[0], 1.0);
  NEAR(apart[1], 1.0);
}

TEST(closed_share_nothing_and_bad_input) {
  NEAR(on_one_link({0.0, 1e9}, {0.0, 0.0})[0], 0.0);
  THROWS(on_one_link({-1.0}, {0.0}), "flow 0 has -1 bytes");
  THROWS(on_one_link({1.0}, {-1.0}), "flow 0 starts at -1 s");
}

TEST(fabric_spread_halves) {
  const GraphBuilder b = two_leaves();
  const std::vector<std::int32_t> src{0, 1}, dst{2, 2};
  const std::vector<std::uint64_t> key{0, 1};
  const std::vector<double> weight{1.0, 3.0};
  const auto load = fabric::spread(b.view(), {}, src, dst, key, weight);
  NEAR(load[0], 1.0);  // host 0 up
  NEAR(load[2], 3.0);  // host 1 up
  NEAR(load[5], 4.0);  // down to host 2
  NEAR(load[8], 2.0);  // leaf 0 to either spine
  NEAR(load[10], 2.0);
  NEAR(load[13], 2.0);  // either spine to leaf 1
  NEAR(load[15], 2.0);
  NEAR(load[9], 0.0);
}

TEST(fabric_spread_partition) {
  GraphBuilder b = two_leaves();
  b.link_up[5] = 0;
  const std::vector<std::int32_t> src{0}, dst{2};
  const std::vector<std::uint64_t> key{0};
  const std::vector<double> weight{1.0};
  THROWS(fabric::spread(b.view(), {}, src, dst, key, weight), "no way from endpoint 0");
}
