// CPU seconds of the flow engine on large runs; prints, asserts nothing.
//   flow_bench [name]...    all of them without a name
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "net/flow/run.h"

using namespace wt::net::flow;

namespace {

double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

double peak_mib() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  return static_cast<double>(use.ru_maxrss) / 1024.0;
}

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
    const int agg = static_cast<int>(hash(h + 1) % static_cast<unsigned>(half)), core = static_cast<int>(hash(h + 2) % static_cast<unsigned>(half));
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
            << " s, run " << to - from << " s CPU; " << out.events << " events, " << out.solver.solves << " solves (" << out.solver.full
            << " full, " << out.solver.fallbacks << " repeated); mean " << sum / static_cast<double>(out.end.size()) * 1e6 << " us, last "
            << last * 1e6 << " us; peak " << peak_mib() << " MiB" << std::endl;
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
  };
  for (const auto& [name, body] : cases)
    if (argc < 2 || std::find(argv + 1, argv + argc, name) != argv + argc) body(name.c_str());
  return EXIT_SUCCESS;
}
