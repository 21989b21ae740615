// Packet-hops per CPU second of the packet engine on a k-ary fat tree; prints, asserts nothing.
//   packet_bench FLOWS.csv K GBIT [CONTROL] [THREADS] [LOSS: pause|drop]
// Flows: src,dst,bytes,start_s with hosts numbered in the order of the tree; latency 1 us, per-flow ECMP by hash, an ACK a packet.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "bench/usage.h"
#include "net/packet/engine.h"
#include "tests/packet_net.h"

using namespace wt::net::packet;
using bench::cpu_seconds;
using bench::peak_mib;

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "packet_bench FLOWS.csv K GBIT [CONTROL] [THREADS] [SEED]\n";
    return EXIT_FAILURE;
  }
  const int k = std::atoi(argv[2]);
  const double rate = std::atof(argv[3]) * 1e9 / 8;
  const std::string control = argc > 4 ? argv[4] : "none";
  const std::uint64_t seed = argc > 6 ? std::strtoull(argv[6], nullptr, 10) : 1;
  packet_net::Net net = packet_net::fat_tree(k, rate, 1e-6);
  std::ifstream file(argv[1]);
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
  options.threads = argc > 5 ? std::atoi(argv[5]) : 1;
  const double before = peak_mib();
  const double begin = cpu_seconds();
  const Result r = run(net.graph(), net.paths(), net.lanes(), options);
  const double cpu = cpu_seconds() - begin;
  std::vector<double> fct = r.acked;
  std::sort(fct.begin(), fct.end());
  double sum = 0;
  for (const double f : fct) sum += f;
  const auto hops = static_cast<double>(r.stats.data_hops + r.stats.ack_hops);
  std::cout << "hops " << hops / 1e6 << " M, events " << static_cast<double>(r.stats.events) / 1e6 << " M, cpu " << cpu << " s, "
            << hops / 1e6 / cpu << " M hops/s, rss " << static_cast<long>(peak_mib()) << " MB (" << static_cast<long>(before)
            << " before)\n"
            << "fct us min " << fct.front() * 1e6 << " p50 " << fct[fct.size() / 2] * 1e6 << " mean "
            << sum / static_cast<double>(fct.size()) * 1e6 << " p99 " << fct[fct.size() * 99 / 100] * 1e6 << " max "
            << fct.back() * 1e6 << "\n"
            << "drops " << r.stats.drops << " pauses " << r.stats.pauses << " marks " << r.stats.marks << " cnps "
            << r.stats.notifications << " retransmits " << r.stats.retransmits << " timeouts " << r.stats.timeouts << " partitions "
            << r.partitions << "\n";
  return EXIT_SUCCESS;
}
