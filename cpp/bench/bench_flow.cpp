// CPU seconds of the flow engine on large runs; prints, asserts nothing.
//   flow_bench [name]...    all of them without a name
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench/usage.h"
#include "net/flow/network.h"
#include "net/flow/run.h"

using namespace wt::net::flow;
using bench::cpu_seconds;
using bench::peak_mib;

namespace {

std::uint32_t hash(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return static_cast<std::uint32_t>((x ^ (x >> 31)) >> 32);
}

// A three-tier fat tree of k ports, every link at one rate, and paths over it by a hash of the flow at every switch.
struct FatTree {
  int k, half, hosts;
  std::vector<double> capacity;

  FatTree(int ports, double rate) : k(ports), half(ports / 2), hosts(ports * ports * ports / 4) {
    capacity.assign(static_cast<std::size_t>(6 * hosts), rate);  // up and down: host, aggregation, core
  }
  void path(int src, int dst, std::uint32_t h, std::vector<std::int32_t>& links) const {
    if (src == dst) return;
    const int tor_s = src / half, tor_d = dst / half, pod_s = tor_s / half, pod_d = tor_d / half;
    const int agg = static_cast<int>(hash(h + 1) % static_cast<unsigned>(half)),
              core = static_cast<int>(hash(h + 2) % static_cast<unsigned>(half));
    links.push_back(src);
    if (tor_s != tor_d) {
      links.push_back(2 * hosts + tor_s * half + agg);
      if (pod_s != pod_d) {
        links.push_back(4 * hosts + (pod_s * half + agg) * half + core);
        links.push_back(5 * hosts + (pod_d * half + agg) * half + core);
      }
      links.push_back(3 * hosts + tor_d * half + agg);
    }
    links.push_back(hosts + dst);
  }
};

struct Flows {
  std::vector<std::int64_t> start{0};
  std::vector<std::int32_t> links;
  std::vector<double> begin, size;
  void end_row() { start.push_back(static_cast<std::int64_t>(links.size())); }
};

void report(const char* name, const std::vector<double>& capacity, const Flows& flows, double tolerance, double before) {
  Options options;
  options.tolerance = tolerance;
  const double from = cpu_seconds();
  const Demands demands{flows.start, flows.links, {}};
  Variables variables;
  variables.begin = flows.begin;
  variables.size = flows.size;
  const Outcome out = run(capacity, demands, variables, {}, options);
  const double to = cpu_seconds();
  double sum = 0.0, last = 0.0;
  for (std::size_t i = 0; i < out.end.size(); ++i) {
    sum += out.end[i] - out.start[i];
    last = std::max(last, out.end[i]);
  }
  std::cout << name << ": " << flows.size.size() << " flows, " << flows.links.size() << " link entries; paths " << from - before
            << " s, run " << to - from << " s CPU; " << out.events << " events, " << out.solver.solves << " solves ("
            << out.solver.full << " full, " << out.solver.fallbacks << " repeated); mean "
            << sum / static_cast<double>(out.end.size()) * 1e6 << " us, last " << last * 1e6 << " us; peak " << peak_mib() << " MiB"
            << std::endl;
}

// All ordered pairs; sizes 64 KiB, or spread by +-`spread` around it, or begins spread over `stagger` seconds.
void all_to_all(const char* name, int ports, double spread, double stagger, double tolerance) {
  const double before = cpu_seconds();
  const FatTree tree(ports, 50e9);
  Flows flows;
  std::mt19937_64 rng(1);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  const auto n = static_cast<std::size_t>(tree.hosts);
  flows.start.reserve(n * n);
  flows.links.reserve(n * n * 6);
  for (int shift = 1; shift < tree.hosts; ++shift)
    for (int src = 0; src < tree.hosts; ++src) {
      const int dst = (src + shift) % tree.hosts;
      tree.path(src, dst, hash(static_cast<std::uint64_t>(src) * n + static_cast<std::uint64_t>(dst)), flows.links);
      flows.end_row();
      flows.size.push_back(65536.0 * (1.0 + spread * uniform(rng)));
      flows.begin.push_back(stagger * (1.0 + uniform(rng)) / 2);
    }
  report(name, tree.capacity, flows, tolerance, before);
}

void permutation(const char* name, int ports, int rounds) {
  const double before = cpu_seconds();
  const FatTree tree(ports, 50e9);
  Flows flows;
  std::mt19937_64 rng(1);
  std::vector<int> to(static_cast<std::size_t>(tree.hosts));
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<int>(i);
  for (int round = 0; round < rounds; ++round) {
    std::shuffle(to.begin(), to.end(), rng);
    for (std::size_t i = 0; i < to.size(); ++i) {
      tree.path(static_cast<int>(i), to[i], static_cast<std::uint32_t>(rng()), flows.links);
      flows.end_row();
      flows.size.push_back(10485760.0);
      flows.begin.push_back(1e-4 * round);
    }
  }
  report(name, tree.capacity, flows, kTolerance, before);
}

// A training step's traffic over 12 288 GPUs: 8 stages of 1 536 ranks, leaves of 32 NICs under 32 spines, paths by hash, so that
// uplinks carry unequal numbers of flows. 14 chains of transfers between stages and 16 of rings within them, each coupled into one
// variable and launched anew when the last one has ended, after a time of computing.
void training_step(const char* name, std::int64_t starts, int width) {
  constexpr int kStages = 8, kLeaf = 32;
  const int hosts = kStages * width;
  PlanTable t;
  t.capacity.assign(static_cast<std::size_t>(4 * hosts), 50e9);  // NIC up, NIC down, leaf to spine, spine to leaf
  t.row_start = {0};
  t.plan_start = {0};
  std::vector<double> demand(t.capacity.size(), 0.0);
  const auto add = [&](std::uint32_t salt, int stage, auto&& to) {
    std::fill(demand.begin(), demand.end(), 0.0);
    for (int i = 0; i < width; ++i) {
      const int src = stage * width + i, dst = to(i);
      const int spine = static_cast<int>(hash((std::uint64_t{salt} << 32) + static_cast<std::uint64_t>(src)) % kLeaf);
      const int links[4] = {src, 2 * hosts + src / kLeaf * kLeaf + spine, 3 * hosts + dst / kLeaf * kLeaf + spine, hosts + dst};
      for (const int l : links) demand[static_cast<std::size_t>(l)] += 1.0;
    }
    for (std::size_t l = 0; l < demand.size(); ++l)
      if (demand[l] > 0.0) {
        t.row_links.push_back(static_cast<std::int32_t>(l));
        t.demand.push_back(demand[l]);
      }
    t.row_start.push_back(static_cast<std::int64_t>(t.row_links.size()));
    t.plan_start.push_back(t.plan_start.back() + 1);
    t.size.push_back(25e6);
    t.latency.push_back(10e-6);
    t.key.push_back(static_cast<std::int64_t>(t.key.size()));
    t.key_plan.push_back(static_cast<std::int32_t>(t.key_plan.size()));
  };
  for (int s = 0; s < kStages; ++s) {
    if (s + 1 < kStages) add(1, s, [&](int i) { return (s + 1) * width + i; });
    if (s > 0) add(2, s, [&](int i) { return (s - 1) * width + i; });
    add(3, s, [&](int i) { return s * width + (i + 8) % width; });
    add(4, s, [&](int i) { return s * width + (i + width - 8) % width; });
  }
  const std::size_t chains = t.key.size(), entries = t.row_links.size();
  const double from = cpu_seconds();
  FlowNetwork net(std::move(t));
  const double built = cpu_seconds();
  std::mt19937_64 rng(1);
  std::uniform_real_distribution<double> computing(0.2e-3, 2e-3);
  std::int64_t begun = 0;
  const auto start = [&](std::int32_t id, double at) {
    ++begun;
    (void)net.start({id, id, at + computing(rng), 0.0});
  };
  for (std::size_t c = 0; c < chains; ++c) start(static_cast<std::int32_t>(c), 0.0);
  while (net.next_event() < wt::kNever)
    if (const auto done = net.advance(); done && begun < starts) start(done->id, done->end);
  const double to = cpu_seconds();
  const PlanReport report = net.report();
  std::cout << name << ": " << chains << " plans, " << entries << " entries, " << report.constraints << " kinds of links, "
            << report.active_constraints << " that can fill up first; built " << built - from << " s, " << begun << " starts "
            << to - built << " s, report " << cpu_seconds() - to << " s CPU; " << report.solver.solves << " solves ("
            << report.solver.full << " full, " << report.solver.fallbacks << " repeated); peak " << peak_mib() << " MiB"
            << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::pair<std::string, std::function<void(const char*)>>> cases{
      {"permutation 1024", [](const char* n) { permutation(n, 16, 1); }},
      {"10 permutations 1024", [](const char* n) { permutation(n, 16, 10); }},
      {"all-to-all 128", [](const char* n) { all_to_all(n, 8, 0, 0, kTolerance); }},
      {"all-to-all 128, sizes +-50 %", [](const char* n) { all_to_all(n, 8, 0.5, 0, kTolerance); }},
      {"all-to-all 128, sizes +-50 %, tolerance 1e-3", [](const char* n) { all_to_all(n, 8, 0.5, 0, 1e-3); }},
      {"all-to-all 128, sizes +-50 %, tolerance 1e-2", [](const char* n) { all_to_all(n, 8, 0.5, 0, 1e-2); }},
      {"all-to-all 1024", [](const char* n) { all_to_all(n, 16, 0, 0, kTolerance); }},
      {"all-to-all 1024, sizes +-50 %, tolerance 1e-2", [](const char* n) { all_to_all(n, 16, 0.5, 0, 1e-2); }},
      {"training step 12288", [](const char* n) { training_step(n, 10000, 1536); }},
  };
  for (const auto& [name, body] : cases)
    if (argc < 2 || std::find(argv + 1, argv + argc, name) != argv + argc) body(name.c_str());
  return EXIT_SUCCESS;
}
