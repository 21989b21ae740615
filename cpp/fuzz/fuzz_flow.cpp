// Random links, rows, arrivals, departures and failures: the incremental solver agrees with a fresh one after every step and its
// solution is certified; runs end, and move every byte once.
//   flow_fuzz [cases] [seed]
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/check.h"
#include "net/flow/run.h"
#include "net/flow/solver.h"

using namespace wt::net::flow;

namespace {

using Rng = std::mt19937_64;

int pick(Rng& rng, int n) { return static_cast<int>(rng() % static_cast<std::uint64_t>(n)); }
double number(Rng& rng, bool round) { return round ? 1.0 + pick(rng, 4) : 0.01 + static_cast<double>(rng() % 100000) / 1000.0; }

void require(bool ok, const std::string& law) {
  if (!ok) throw std::logic_error(law);
}
bool close(double a, double b) { return std::abs(a - b) <= 1e-8 * std::max({1e-9, std::abs(a), std::abs(b)}); }

struct Net {
  std::vector<std::int64_t> start{0};
  std::vector<std::int32_t> links;
  std::vector<double> demand, capacity;
  Unknowns unknowns;

  Demands demands() const { return {start, links, demand}; }
};

Net random_net(Rng& rng) {
  Net net;
  const bool round = pick(rng, 2) == 0, coupled = pick(rng, 2) == 0;  // round numbers make ties
  const bool large = pick(rng, 40) == 0;  // large enough that incremental sweeps are given up
  const int links = 1 + pick(rng, large ? 60 : 12), rows = 1 + pick(rng, large ? 1500 : 40), longest = 1 + pick(rng, 5);
  for (int l = 0; l < links; ++l) net.capacity.push_back(number(rng, round));
  for (int r = 0; r < rows; ++r) {
    for (int i = pick(rng, longest + 1); i >= 0; --i) {
      net.links.push_back(pick(rng, links));
      if (coupled) net.demand.push_back(number(rng, round));
    }
    net.start.push_back(static_cast<std::int64_t>(net.links.size()));
    net.unknowns.row.push_back(r);
    net.unknowns.bound.push_back(pick(rng, 3) == 0 ? number(rng, round) / 4 : std::numeric_limits<double>::infinity());
  }
  return net;
}

struct Counts {
  std::int64_t incremental = 0, abandoned = 0;
};

void check_solver(Rng& rng, Counts& counts) {
  Net net = random_net(rng);
  const bool round = pick(rng, 2) == 0;
  Solver solver(net.demands(), net.unknowns, net.capacity, {});
  const auto rows = static_cast<int>(net.unknowns.size());
  std::vector<double> weight(static_cast<std::size_t>(rows), 0.0);
  if (pick(rng, 2) == 0)
    for (int u = 0; u < rows; ++u) solver.set_weight(u, weight[static_cast<std::size_t>(u)] = number(rng, round));
  for (int step = 0; step < 30; ++step) {
    for (int change = pick(rng, 4); change >= 0; --change) {
      if (pick(rng, 8) == 0) {
        const auto l = static_cast<std::size_t>(pick(rng, static_cast<int>(net.capacity.size())));
        net.capacity[l] = pick(rng, 4) == 0 ? 0.0 : number(rng, round);
        solver.set_capacity(static_cast<std::int32_t>(l), net.capacity[l]);
      } else {
        const int u = pick(rng, rows);
        double& w = weight[static_cast<std::size_t>(u)];
        w = w > 0.0 && pick(rng, 2) == 0 ? 0.0 : number(rng, round);
        solver.set_weight(u, w);
      }
    }
    solver.solve();
    require(solver.certified(), "an incremental solution is certified");
    Solver fresh(net.demands(), net.unknowns, net.capacity, {});
    for (int u = 0; u < rows; ++u) fresh.set_weight(u, weight[static_cast<std::size_t>(u)]);
    fresh.solve();
    for (int u = 0; u < rows; ++u) require(close(solver.level(u), fresh.level(u)), "incremental and full solutions agree");
  }
  require(solver.stats().fallbacks == 0, "no certificate fails at these sizes");
  counts.incremental += solver.stats().incremental;
  counts.abandoned += solver.stats().abandoned;
}

void check_run(Rng& rng) {
  const Net net = random_net(rng);
  const bool round = pick(rng, 2) == 0;
  const auto n = static_cast<std::size_t>(pick(rng, 80));
  std::vector<std::int32_t> row;
  std::vector<double> begin, size, weight, bound;
  std::vector<std::int64_t> dep_start{0};
  std::vector<std::int32_t> deps;
  for (std::size_t v = 0; v < n; ++v) {
    row.push_back(pick(rng, static_cast<int>(net.unknowns.size())));
    begin.push_back(pick(rng, 2) == 0 ? 0.0 : number(rng, round));
    size.push_back(pick(rng, 10) == 0 ? 0.0 : number(rng, round));
    weight.push_back(number(rng, round));
    bound.push_back(pick(rng, 3) == 0 ? number(rng, round) : std::numeric_limits<double>::infinity());
    if (v > 0 && pick(rng, 3) == 0) deps.push_back(pick(rng, static_cast<int>(v)));
    dep_start.push_back(static_cast<std::int64_t>(deps.size()));
  }
  std::vector<double> time, to;
  std::vector<std::int32_t> link;
  double at = 0.0;
  for (int c = pick(rng, 6); c > 0; --c) {
    time.push_back(at += number(rng, round));
    link.push_back(pick(rng, static_cast<int>(net.capacity.size())));
    to.push_back(pick(rng, 3) == 0 ? 0.0 : number(rng, round));
  }
  std::vector<double> most = net.capacity;
  for (std::size_t c = 0; c < link.size(); ++c) most[static_cast<std::size_t>(link[c])] = std::max(most[static_cast<std::size_t>(link[c])], to[c]);
  for (std::size_t l = 0; l < net.capacity.size(); ++l) {  // at last every link is up
    time.push_back(at + 1.0);
    link.push_back(static_cast<std::int32_t>(l));
    to.push_back(net.capacity[l]);
  }
  Options options;
  options.tolerance = pick(rng, 2) == 0 ? 1e-9 : 0.05;
  Variables v;
  v.row = row;
  v.begin = begin;
  v.size = size;
  v.weight = weight;
  v.bound = bound;
  v.dep_start = dep_start;
  v.deps = deps;
  const Outcome out = run(net.capacity, net.demands(), v, Changes{time, link, to}, options);
  std::vector<double> bytes(net.capacity.size(), 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    require(std::isfinite(out.end[i]) && out.end[i] >= out.start[i] && out.start[i] >= begin[i] * (1 - 1e-9), "everything ends after it began");
    const auto r = static_cast<std::size_t>(row[i]);
    for (auto k = static_cast<std::size_t>(net.start[r]); k < static_cast<std::size_t>(net.start[r + 1]); ++k)
      bytes[static_cast<std::size_t>(net.links[k])] += size[i] * (net.demand.empty() ? 1.0 : net.demand[k]);
  }
  for (std::size_t l = 0; l < bytes.size(); ++l) {
    require(close(bytes[l], out.use.bytes[l]), "every byte crosses its links once");
    require(out.use.bytes[l] <= most[l] * out.last * (1 + 1e-9), "no link moves more than it can");
    require(out.use.busy[l] <= out.last * (1 + 1e-9) && out.use.full[l] <= out.use.busy[l] * (1 + 1e-9), "no link is busy for longer than the run");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int cases = argc > 1 ? std::atoi(argv[1]) : 2000;
  const auto seed = static_cast<std::uint64_t>(argc > 2 ? std::atoll(argv[2]) : 1);
  Counts counts;
  for (int n = 0; n < cases; ++n) {
    Rng rng(seed * 1000003 + static_cast<std::uint64_t>(n));
    try {
      check_solver(rng, counts);
      check_run(rng);
    } catch (const std::exception& error) {
      std::cerr << "case " << n << " of seed " << seed << ": " << error.what() << "\n";
      return EXIT_FAILURE;
    }
  }
  std::cout << cases << " cases, " << counts.incremental << " incremental solves, " << counts.abandoned << " given up\n";
  return EXIT_SUCCESS;
}
