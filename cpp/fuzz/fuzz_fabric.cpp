// Random graphs with servers, dual-homed NICs and links that are down: a path is a chain of links that are up, or an error.
//   fabric_fuzz [graphs] [seed]
#include <cstdlib>
#include <iostream>
#include <random>

#include "base/check.h"
#include "fabric/router.h"
#include "fabric/spread.h"
#include "tests/fabric_builder.h"

namespace {

using namespace wt::fabric;

GraphBuilder random_graph(std::mt19937_64& rng) {
  const auto draw = [&rng](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  GraphBuilder b;
  const int switches = draw(1, 20);  // more than are scanned without a table
  for (int s = 0; s < switches; ++s) b.node(draw(0, 5) == 0 ? NodeKind::kGpu : NodeKind::kSwitch);
  const int servers = draw(0, 4);
  for (int site = 0; site < servers; ++site) {
    const int gpus = draw(1, 4), nics = draw(0, 3);
    const std::int32_t hub = b.node(draw(0, 1) == 0 ? NodeKind::kPcie : NodeKind::kCpu, site);
    const std::int32_t nvswitch = draw(0, 1) == 0 ? b.node(NodeKind::kNvswitch, site) : -1;
    std::vector<std::int32_t> cards;
    for (int n = 0; n < nics; ++n) {
      cards.push_back(b.node(NodeKind::kNic, site));
      b.cable(cards.back(), hub);
      for (int port = draw(0, 2); port > 0; --port) b.cable(cards.back(), draw(0, switches - 1));
    }
    for (int g = 0; g < gpus; ++g) {
      const std::int32_t gpu = b.node(NodeKind::kGpu, site);
      if (draw(0, 9) != 0) b.cable(gpu, hub);
      if (nvswitch >= 0) b.cable(gpu, nvswitch);
      b.endpoint_at(gpu, cards, draw(-1, 2));
    }
  }
  for (int h = draw(1, 5); h > 0; --h) {
    const std::int32_t host = b.node(NodeKind::kHost);
    b.endpoint_at(host);
    for (int port = draw(0, 2); port > 0; --port) b.cable(host, draw(0, switches - 1));
  }
  for (int c = draw(0, 3 * switches); c > 0; --c) {
    const int x = draw(0, switches - 1), y = draw(0, switches - 1);
    if (x != y) b.cable(x, y, 1e9, 1e-6, static_cast<std::int16_t>(draw(-1, 2)));
  }
  const int down = draw(0, 3);
  for (auto& up : b.link_up) up = draw(0, 9) < down ? 0 : 1;
  return b;
}

void check_path(const GraphBuilder& b, const std::vector<std::int32_t>& links, std::int32_t src, std::int32_t dst) {
  std::int32_t at = b.endpoint[static_cast<std::size_t>(src)];
  for (const std::int32_t link : links) {
    const auto l = static_cast<std::size_t>(link);
    if (b.link_from[l] != at || b.link_up[l] == 0) wt::fail("a path from ", src, " to ", dst, " breaks at link ", link);
    at = b.link_to[l];
  }
  if (at != b.endpoint[static_cast<std::size_t>(dst)]) wt::fail("a path from ", src, " to ", dst, " ends at node ", at);
}

}  // namespace

int main(int argc, char** argv) {
  const long graphs = argc > 1 ? std::atol(argv[1]) : 1000;
  std::mt19937_64 rng(argc > 2 ? static_cast<std::uint64_t>(std::atoll(argv[2])) : 1);
  long found = 0, cut = 0;
  for (long g = 0; g < graphs; ++g) {
    const GraphBuilder b = random_graph(rng);
    const RouteOptions options{static_cast<Policy>(rng() % 4), static_cast<NicChoice>(rng() % 3), rng()};
    Router router(b.view(), options);
    const auto ends = static_cast<std::int32_t>(b.endpoint.size());
    std::vector<std::int32_t> src, dst;
    std::vector<std::uint64_t> key;
    double hops = 0.0;
    for (std::int32_t i = 0; i < ends * ends; ++i) {
      std::vector<std::int32_t> links;
      const std::uint64_t flow = rng();
      try {
        router.path(i / ends, i % ends, flow, links);
      } catch (const wt::Error&) {
        ++cut;
        continue;
      }
      check_path(b, links, i / ends, i % ends);
      ++found;
      hops += static_cast<double>(links.size());
      src.push_back(i / ends);
      dst.push_back(i % ends);
      key.push_back(flow);
    }
    double total = 0.0;
    for (const double load : spread(b.view(), options, src, dst, key, std::vector<double>(src.size(), 1.0))) total += load;
    if (total < hops - 1e-6 * (1.0 + hops) || total > hops + 1e-6 * (1.0 + hops)) {
      wt::fail("graph ", g, ": an even spread has ", total, " link loads, the paths have ", hops);
    }
  }
  std::cout << graphs << " graphs, " << found << " paths, " << cut << " pairs cut off\n";
  return 0;
}
