#include <set>

#include "fabric/router.h"
#include "tests/check.h"
#include "tests/fabric_builder.h"

namespace {

using namespace wt::fabric;
using Links = std::vector<std::int32_t>;

Links path_of(const GraphBuilder& b, std::int32_t src, std::int32_t dst, std::uint64_t key = 0, RouteOptions options = {}) {
  Router router(b.view(), options);
  Links links;
  router.path(src, dst, key, links);
  return links;
}

// Two leaves, `spines` spines, two hosts a leaf: hosts 0 and 1 on leaf 0.
GraphBuilder leaf_spine(int spines) {
  GraphBuilder b;
  Links hosts, leaves;
  for (int i = 0; i < 2; ++i) leaves.push_back(b.node(NodeKind::kSwitch));
  for (int i = 0; i < 4; ++i) {
    hosts.push_back(b.node(NodeKind::kHost));
    b.cable(hosts.back(), leaves[static_cast<std::size_t>(i / 2)]);  // link 2i goes up, 2i + 1 down
    b.endpoint_at(hosts.back());
  }
  for (int i = 0; i < spines; ++i) {
    const std::int32_t spine = b.node(NodeKind::kSwitch);
    for (const std::int32_t leaf : leaves) b.cable(leaf, spine);
  }
  return b;
}

// One server: GPUs 0 and 1 on an NVSwitch, each with its NIC on its own PCIe switch, both PCIe switches on a CPU.
struct Server {
  std::int32_t gpu[2], nic[2];
};
Server server(GraphBuilder& b, std::int32_t site, bool nvlink) {
  Server s{};
  const std::int32_t cpu = b.node(NodeKind::kCpu, site);
  const std::int32_t nvswitch = nvlink ? b.node(NodeKind::kNvswitch, site) : -1;
  for (int i = 0; i < 2; ++i) {
    s.gpu[i] = b.node(NodeKind::kGpu, site);
    s.nic[i] = b.node(NodeKind::kNic, site);
    const std::int32_t pcie = b.node(NodeKind::kPcie, site);
    b.cable(s.gpu[i], pcie);
    b.cable(s.nic[i], pcie);
    b.cable(pcie, cpu);
    if (nvlink) b.cable(s.gpu[i], nvswitch);
    b.endpoint_at(s.gpu[i], {s.nic[i]}, i);
  }
  return s;
}

// Two servers whose rails hang on a leaf each; the leaves meet on a spine if `joined`.
GraphBuilder two_servers(bool nvlink, bool joined) {
  GraphBuilder b;
  const Server first = server(b, 0, nvlink);
  const Server second = server(b, 1, nvlink);
  const std::int32_t spine = joined ? b.node(NodeKind::kSwitch) : -1;
  for (int i = 0; i < 2; ++i) {
    const std::int32_t leaf = b.node(NodeKind::kSwitch);
    b.cable(first.nic[i], leaf);
    b.cable(second.nic[i], leaf);
    if (joined) b.cable(leaf, spine);
  }
  return b;
}

std::vector<NodeKind> kinds(const GraphBuilder& b, const Links& links) {
  std::vector<NodeKind> through;
  for (const std::int32_t l : links) {
    through.push_back(static_cast<NodeKind>(b.node_kind[static_cast<std::size_t>(b.link_to[static_cast<std::size_t>(l)])]));
  }
  return through;
}

bool connected(const GraphBuilder& b, const Links& links, std::int32_t src, std::int32_t dst) {
  std::int32_t at = b.endpoint[static_cast<std::size_t>(src)];
  for (const std::int32_t l : links) {
    if (b.link_from[static_cast<std::size_t>(l)] != at) return false;
    at = b.link_to[static_cast<std::size_t>(l)];
  }
  return at == b.endpoint[static_cast<std::size_t>(dst)];
}

}  // namespace

TEST(fabric_leaf_spine_paths) {
  const GraphBuilder b = leaf_spine(1);
  CHECK((path_of(b, 0, 1) == Links{0, 3}));
  CHECK((path_of(b, 0, 2) == Links{0, 8, 11, 5}));  // up, leaf 0 -> spine, spine -> leaf 1, down
  CHECK(path_of(b, 2, 2).empty());
}

TEST(fabric_ecmp_spreads_and_repeats) {
  const GraphBuilder b = leaf_spine(4);
  Router router(b.view(), {});
  std::vector<int> used(b.link_from.size(), 0);
  for (std::uint64_t key = 0; key < 4000; ++key) {
    Links links, again;
    router.path(0, 2, key, links);
    router.path(0, 2, key, again);
    CHECK(links == again && links.size() == 4 && connected(b, links, 0, 2));
    ++used[static_cast<std::size_t>(links[1])];
  }
  for (std::size_t l = 8; l < used.size(); l += 4) CHECK(used[l] > 850 && used[l] < 1150);  // 1000 each, sigma 27
}

TEST(fabric_first_and_seed) {
  const GraphBuilder b = leaf_spine(4);
  CHECK(path_of(b, 0, 2, 7, {Policy::kFirst, NicChoice::kNearest, 1})[1] == 8);
  std::set<std::int32_t> spines;
  for (std::uint64_t seed = 0; seed < 64; ++seed) spines.insert(path_of(b, 0, 2, 7, {Policy::kEcmp, NicChoice::kNearest, seed})[1]);
  CHECK(spines.size() == 4);
}

// Three tiers of two choices each: with one salt everywhere the second choice follows from the first.
TEST(fabric_polarized_hash_uses_half) {
  GraphBuilder b;
  const std::int32_t src = b.node(NodeKind::kHost), dst = b.node(NodeKind::kHost), leaf = b.node(NodeKind::kSwitch),
                     last = b.node(NodeKind::kSwitch);
  b.cable(src, leaf);
  b.cable(last, dst);
  for (int i = 0; i < 2; ++i) {
    const std::int32_t mid = b.node(NodeKind::kSwitch);
    b.cable(leaf, mid);
    for (int j = 0; j < 2; ++j) {
      const std::int32_t top = b.node(NodeKind::kSwitch);
      b.cable(mid, top);
      b.cable(top, last);
    }
  }
  b.endpoint_at(src);
  b.endpoint_at(dst);
  for (const auto& [policy, want] : {std::pair{Policy::kEcmp, 4U}, std::pair{Policy::kEcmpPolarized, 2U}}) {
    std::set<std::int32_t> tops;
    for (std::uint64_t key = 0; key < 200; ++key) tops.insert(path_of(b, 0, 1, key, {policy, NicChoice::kNearest, 3})[2]);
    CHECK(tops.size() == want);
  }
}

TEST(fabric_hosts_carry_no_transit) {
  GraphBuilder b = leaf_spine(1);
  const std::int32_t dual = b.node(NodeKind::kHost);  // on both leaves: a way through it would be as short as the spine's
  b.cable(dual, 0);
  b.cable(dual, 1);
  const std::int32_t h = b.endpoint_at(dual);
  for (std::uint64_t key = 0; key < 50; ++key) CHECK((path_of(b, 0, 2, key) == Links{0, 8, 11, 5}));
  CHECK(path_of(b, h, 2).size() == 2);  // by the leaf that is nearer
  CHECK(path_of(b, 0, h).size() == 2);
}

TEST(fabric_down_links) {
  GraphBuilder b = leaf_spine(2);
  b.link_up[8] = 0;  // leaf 0 -> spine 0
  for (std::uint64_t key = 0; key < 50; ++key) CHECK((path_of(b, 0, 2, key) == Links{0, 12, 15, 5}));
  b.link_up[12] = 0;
  THROWS(path_of(b, 0, 2), "no way from endpoint 0 (node 2) to endpoint 2 (node 4)");
  CHECK(path_of(b, 2, 0).size() == 4);  // the other direction is up
  THROWS(path_of(b, 0, 9), "endpoint 9, there are 4");
}

TEST(fabric_torus_dimension_order) {
  GraphBuilder b;  // 4 x 4, node = 4 * y + x; axis 0 along x
  for (int i = 0; i < 16; ++i) b.endpoint_at(b.node(NodeKind::kGpu));
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 4; ++x) {
      b.cable(4 * y + x, 4 * y + (x + 1) % 4, 1e9, 1e-6, 0);
      b.cable(4 * y + x, 4 * ((y + 1) % 4) + x, 1e9, 1e-6, 1);
    }
  }
  for (std::uint64_t key = 0; key < 20; ++key) {
    const Links links = path_of(b, 0, 5, key, {Policy::kDimensionOrder, NicChoice::kNearest, 1});
    CHECK((links.size() == 2 && b.link_axis[static_cast<std::size_t>(links[0])] == 0));
    CHECK((b.link_axis[static_cast<std::size_t>(links[1])] == 1));
  }
  CHECK(path_of(b, 0, 10).size() == 4);
  CHECK(path_of(b, 0, 3).size() == 1);  // the wrap-around link
}

TEST(fabric_inside_a_server) {
  const GraphBuilder fast = two_servers(true, true);
  using K = NodeKind;
  CHECK((kinds(fast, path_of(fast, 0, 1)) == std::vector<K>{K::kNvswitch, K::kGpu}));
  const GraphBuilder slow = two_servers(false, true);
  CHECK((kinds(slow, path_of(slow, 0, 1)) == std::vector<K>{K::kPcie, K::kCpu, K::kPcie, K::kGpu}));
}

TEST(fabric_nic_choices) {
  using K = NodeKind;
  const GraphBuilder b = two_servers(true, true);
  const std::vector<K> spine{K::kPcie, K::kNic, K::kSwitch, K::kSwitch, K::kSwitch, K::kNic, K::kPcie, K::kGpu};
  CHECK(kinds(b, path_of(b, 0, 3)) == spine);
  CHECK((kinds(b, path_of(b, 0, 3, 0, {Policy::kEcmp, NicChoice::kPxn, 1})) ==
         std::vector<K>{K::kNvswitch, K::kGpu, K::kPcie, K::kNic, K::kSwitch, K::kNic, K::kPcie, K::kGpu}));
  CHECK((kinds(b, path_of(b, 0, 3, 0, {Policy::kEcmp, NicChoice::kRail, 1})) ==
         std::vector<K>{K::kPcie, K::kNic, K::kSwitch, K::kNic, K::kPcie, K::kGpu, K::kNvswitch, K::kGpu}));
  CHECK(path_of(b, 0, 2, 0, {Policy::kEcmp, NicChoice::kPxn, 1}).size() == 6);  // the same rail
}

TEST(fabric_pxn_needs_nvlink) {
  const GraphBuilder b = two_servers(false, true);
  CHECK(path_of(b, 0, 3, 0, {Policy::kEcmp, NicChoice::kPxn, 1}) == path_of(b, 0, 3));
  const GraphBuilder apart = two_servers(false, false);
  THROWS(path_of(apart, 0, 3), "no way from endpoint 0");
}

TEST(fabric_spreads_over_equally_near_nics) {
  GraphBuilder b;
  const std::int32_t leaf = b.node(NodeKind::kSwitch), other = b.node(NodeKind::kHost);
  const std::int32_t gpu = b.node(NodeKind::kGpu, 0), pcie = b.node(NodeKind::kPcie, 0);
  b.cable(gpu, pcie);
  b.cable(other, leaf);
  Links nics;
  for (int i = 0; i < 2; ++i) {
    nics.push_back(b.node(NodeKind::kNic, 0));
    b.cable(pcie, nics.back());
    b.cable(nics.back(), leaf);
  }
  b.endpoint_at(gpu, nics);
  b.endpoint_at(other);
  std::set<std::int32_t> used;
  for (std::uint64_t key = 0; key < 50; ++key) used.insert(path_of(b, 0, 1, key)[1]);
  CHECK(used.size() == 2);
  b.link_up[static_cast<std::size_t>(*used.begin() + 2)] = 0;  // pcie -> nic is followed by nic -> pcie, then nic -> leaf
  for (std::uint64_t key = 0; key < 50; ++key) CHECK(path_of(b, 0, 1, key)[1] == *used.rbegin());
}

TEST(fabric_next_hops) {
  const GraphBuilder b = leaf_spine(20);  // leaves with more links than are scanned
  Router router(b.view(), {});
  const auto up = router.next_hops(0, 4);
  CHECK(up.size() == 20);
  const auto down = router.next_hops(1, 4);
  CHECK(down.size() == 1 && down[0] == 5);
  CHECK(router.next_hops(2, 4).size() == 1);  // a host's own link
  CHECK(router.next_hops(0, 4).data() == up.data());
  THROWS(router.next_hops(0, 99), "node 99");
}

TEST(fabric_validate) {
  GraphBuilder b = leaf_spine(1);
  b.link_rate[3] = 0.0;
  THROWS(validate(b.view()), "graph.link_rate[3] is 0 B/s");
  b = leaf_spine(1);
  b.link_to[2] = 99;
  THROWS(validate(b.view()), "graph.link_to[2] is 99, there are 7 nodes");
  b = leaf_spine(1);
  b.link_latency[0] = -1.0;
  THROWS(validate(b.view()), "graph.link_latency[0]");
  b = leaf_spine(1);
  b.link_up.pop_back();
  THROWS(validate(b.view()), "graph.link_up has 11 rows");
  b = leaf_spine(1);
  b.endpoint_at(0, {0});
  THROWS(validate(b.view()), "is not a NIC");
}
