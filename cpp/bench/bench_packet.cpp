// Packet-hops per CPU second of the packet engine on a k-ary fat tree; prints, asserts nothing.
//   packet_bench CASE|FLOWS.csv,K,GBIT [CONTROL] [THREADS] [SEED] [PARTITIONS]
// CASE is 128, 1024, 4394 or 16000: that many hosts, each sending to another one, in a permutation; "cases" runs all of them.
// Flows of a file: src,dst,bytes,start_s with hosts numbered in the order of the tree. Latency 1 us, per-flow ECMP by hash, PFC,
// ECN, an ACK a packet. The hash is of all results, so two builds or two numbers of threads can be compared.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "bench/usage.h"
#include "net/packet/engine.h"
#include "tests/packet_net.h"

using namespace wt::net::packet;
using bench::cpu_seconds;
using bench::peak_mib;

namespace {

struct Case {
  int hosts, k;
  double gbit;
  std::int64_t bytes;
};
constexpr Case kCases[] = {
    {128, 8, 400, 10'485'760}, {1024, 16, 400, 10'485'760}, {4394, 26, 100, 1'048'576}, {16000, 40, 100, 1'048'576}};

// Everybody sends to somebody else: one cycle through all hosts, by Sattolo's shuffle.
packet_net::Net permutation(const Case& c, std::uint64_t seed) {
  packet_net::Net net = packet_net::fat_tree(c.k, c.gbit * 1e9 / 8, 1e-6);
  std::vector<int> to(static_cast<std::size_t>(c.hosts));
  std::iota(to.begin(), to.end(), 0);
  for (std::size_t i = to.size() - 1; i > 0; --i) std::swap(to[i], to[mix(mix(seed) + i) % i]);
  for (int i = 0; i < c.hosts; ++i) {
    const int dst = to[static_cast<std::size_t>(i)];
    net.lane(i, dst, c.bytes, packet_net::fat_tree_path(c.k, i, dst, mix(mix(seed) + static_cast<std::uint64_t>(i))));
  }
  return net;
}

packet_net::Net flows_of(const std::string& path, int k, double gbit, std::uint64_t seed) {
  packet_net::Net net = packet_net::fat_tree(k, gbit * 1e9 / 8, 1e-6);
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::uint64_t flow = 0;
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream row(line);
    int src = 0, dst = 0;
    std::int64_t bytes = 0;
    double start = 0;
    row >> src >> dst >> bytes >> start;
    net.lane(src, dst, bytes, packet_net::fat_tree_path(k, src, dst, mix(mix(seed) + flow++)), start);
  }
  return net;
}

template <class T>
void fold(std::uint64_t& hash, const std::vector<T>& column) {
  for (const T& x : column) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &x, sizeof x);
    hash = mix(hash ^ bits);
  }
}

std::uint64_t hash_of(const Result& r) {
  std::uint64_t hash = 0;
  fold(hash, r.delivered), fold(hash, r.acked), fold(hash, r.link_data), fold(hash, r.link_control), fold(hash, r.link_peak),
      fold(hash, r.link_paused);
  std::vector<std::int64_t> counts(sizeof r.stats / sizeof(std::int64_t));
  std::memcpy(counts.data(), &r.stats, sizeof r.stats);
  fold(hash, counts);
  return hash;
}

Options options_of(const std::string& control, int threads) {
  Options options;
  options.ecn = {{12.5e9, 400e3, 1600e3, 0.2}};
  const auto colon = control.find(':');
  options.control_name = control.substr(0, colon);
  if (colon != std::string::npos) {  // name:parameter=value,...
    std::string rest = control.substr(colon + 1);
    std::replace(rest.begin(), rest.end(), ',', ' ');
    std::istringstream items(rest);
    std::string item;
    while (items >> item)
      options.control_settings.push_back({item.substr(0, item.find('=')), std::atof(item.substr(item.find('=') + 1).c_str())});
  }
  options.threads = threads;
  return options;
}

void time_run(const std::string& name, const packet_net::Net& net, const Options& options) {
  const double before = peak_mib();
  const double begin = cpu_seconds();
  const Result r = run(net.graph(), net.paths(), net.lanes(), options);
  const double cpu = cpu_seconds() - begin;
  std::vector<double> fct = r.acked;
  std::sort(fct.begin(), fct.end());
  const double sum = std::accumulate(fct.begin(), fct.end(), 0.0);
  const auto hops = static_cast<double>(r.stats.data_hops + r.stats.ack_hops);
  std::cout << name << ": hops " << hops / 1e6 << " M, events " << static_cast<double>(r.stats.events) / 1e6 << " M, cpu " << cpu
            << " s, " << hops / 1e6 / cpu << " M hops/s, rss " << static_cast<long>(peak_mib()) << " MB ("
            << static_cast<long>(before) << " before), partitions " << r.partitions << ", threads " << options.threads << ", hash "
            << std::hex << hash_of(r) << std::dec << "\n  fct us min " << fct.front() * 1e6 << " p50 " << fct[fct.size() / 2] * 1e6
            << " mean " << sum / static_cast<double>(fct.size()) * 1e6 << " p99 " << fct[fct.size() * 99 / 100] * 1e6 << " max "
            << fct.back() * 1e6 << "; drops " << r.stats.drops << " pauses " << r.stats.pauses << " marks " << r.stats.marks
            << " cnps " << r.stats.notifications << " retransmits " << r.stats.retransmits << " timeouts " << r.stats.timeouts
            << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "packet_bench cases|128|1024|4394|16000|FLOWS.csv,K,GBIT [CONTROL] [THREADS] [SEED] [PARTITIONS]\n";
    return EXIT_FAILURE;
  }
  const std::string what = argv[1];
  Options options = options_of(argc > 2 ? argv[2] : "dcqcn", argc > 3 ? std::atoi(argv[3]) : 1);
  if (argc > 5) options.parts = std::atoi(argv[5]);
  const std::uint64_t seed = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 1;
  const auto comma = what.find(',');
  if (comma != std::string::npos) {
    std::istringstream rest(what.substr(comma + 1));
    int k = 0;
    char between = 0;
    double gbit = 0;
    rest >> k >> between >> gbit;
    time_run(what, flows_of(what.substr(0, comma), k, gbit, seed), options);
    return EXIT_SUCCESS;
  }
  for (const Case& c : kCases)
    if (what == "cases" || what == std::to_string(c.hosts))
      time_run(std::to_string(c.hosts) + " hosts", permutation(c, seed), options);
  return EXIT_SUCCESS;
}
