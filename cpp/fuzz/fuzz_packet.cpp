// Random graphs, lanes, options and faults: a run ends or says why not, no byte is lost or comes twice, no link is faster than it
// is, and the number of partitions and threads changes nothing, nor does going ahead of a caller that launches while it runs.
//   packet_fuzz [RUNS] [SEED]
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/check.h"
#include "net/packet/engine.h"
#include "tests/packet_feed.h"
#include "tests/packet_net.h"

using namespace wt::net::packet;
using packet_net::Net;

namespace {

using Rng = std::mt19937_64;

int pick(Rng& rng, int n) { return static_cast<int>(rng() % static_cast<std::uint64_t>(n)); }

template <class T>
T one_of(Rng& rng, std::initializer_list<T> values) {
  return values.begin()[pick(rng, static_cast<int>(values.size()))];
}

// Hosts that forward, in a ring of rings.
Net torus(int rows, int columns, double rate, double latency) {
  Net net;
  for (int i = 0; i < rows * columns; ++i) net.host();
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) {
      if (columns > 1) net.cable(i * columns + j, i * columns + (j + 1) % columns, rate, latency);
      if (rows > 1) net.cable(i * columns + j, (i + 1) % rows * columns + j, rate, latency);
    }
  return net;
}

// Hosts at one or two leaves, each leaf at every spine; or groups of switches that are all joined, with a cable between any two
// groups.
Net clos_or_dragonfly(Rng& rng, int& hosts, double rate, double latency) {
  Net net;
  const bool groups = pick(rng, 2) == 0;
  const int leaves = 2 + pick(rng, 4), spines = groups ? 0 : 1 + pick(rng, 3), homes = 1 + pick(rng, 2), each = 1 + pick(rng, 3);
  const int switches = groups ? 2 * leaves : leaves + spines;
  hosts = leaves * each;
  for (int i = 0; i < hosts; ++i) net.host();
  for (int i = 0; i < switches; ++i) net.node(wt::fabric::NodeKind::kSwitch);
  for (int i = 0; i < hosts; ++i)
    for (int h = 0; h < homes; ++h) net.cable(i, hosts + (i / each + h) % leaves, rate, latency);
  if (groups) {  // switch g and leaves + g are group g
    for (int g = 0; g < leaves; ++g) net.cable(hosts + g, hosts + leaves + g, rate, latency);
    for (int g = 0; g < leaves; ++g)
      for (int o = 0; o < g; ++o) net.cable(hosts + leaves + g, hosts + pick(rng, 2) * leaves + o, rate, latency);
  } else {
    for (int l = 0; l < leaves; ++l)
      for (int s = 0; s < spines; ++s) net.cable(hosts + l, hosts + leaves + s, rate, latency);
  }
  return net;
}

// A fabric of equal cables, where many things happen at one moment; or hosts and switches in a random tree with some more cables.
Net random_graph(Rng& rng, int& hosts) {
  const double rate = one_of(rng, {12.5e9, 50e9}), latency = one_of(rng, {1e-7, 1e-6});
  switch (pick(rng, 6)) {
    case 0: {
      const int rows = 1 + pick(rng, 4), columns = 2 + pick(rng, 3);
      hosts = rows * columns;
      return torus(rows, columns, rate, latency);
    }
    case 1:
      hosts = 16;
      return packet_net::fat_tree(4, rate, latency);
    case 2:
    case 3:
      return clos_or_dragonfly(rng, hosts, rate, latency);
    default:
      break;
  }
  Net net;
  hosts = 2 + pick(rng, 6);
  const int switches = 1 + pick(rng, 6);
  for (int i = 0; i < hosts; ++i) net.host();
  for (int i = 0; i < switches; ++i) net.node(pick(rng, 6) == 0 ? wt::fabric::NodeKind::kPcie : wt::fabric::NodeKind::kSwitch);
  const auto cable = [&](int a, int b) {
    net.cable(a, b, one_of(rng, {1.25e9, 12.5e9, 50e9, 3.3e9}), one_of(rng, {0.0, 1e-7, 1e-6, 1e-5}));
  };
  for (int i = 1; i < switches; ++i) cable(hosts + i, hosts + pick(rng, i));
  for (int i = 0; i < hosts; ++i) cable(i, hosts + pick(rng, switches));
  for (int n = pick(rng, 6); n > 0 && switches > 1; --n) {
    const int a = pick(rng, switches), b = pick(rng, switches);
    if (a != b) cable(hosts + a, hosts + b);
  }
  return net;
}

// A shortest way, random among equal ones; through hosts only where it ends.
std::vector<std::int32_t> random_way(Rng& rng, const Net& net, int src, int dst) {
  std::vector<int> far(net.kind.size(), -1);
  std::deque<int> queue{dst};
  far[static_cast<std::size_t>(dst)] = 0;
  while (!queue.empty()) {
    const int at = queue.front();
    queue.pop_front();
    for (std::size_t l = 0; l < net.from.size(); ++l) {
      const auto from = static_cast<std::size_t>(net.from[l]);
      if (net.to[l] != at || far[from] >= 0) continue;
      far[from] = far[static_cast<std::size_t>(at)] + 1;
      queue.push_back(net.from[l]);
    }
  }
  std::vector<std::int32_t> way;
  for (int at = src; at != dst;) {
    std::vector<std::int32_t> next;
    for (std::size_t l = 0; l < net.from.size(); ++l)
      if (net.from[l] == at && far[static_cast<std::size_t>(net.to[l])] == far[static_cast<std::size_t>(at)] - 1)
        next.push_back(static_cast<std::int32_t>(l));
    way.push_back(next[static_cast<std::size_t>(pick(rng, static_cast<int>(next.size())))]);
    at = net.to[static_cast<std::size_t>(way.back())];
  }
  return way;
}

void random_lanes(Rng& rng, Net& net, int hosts, bool holds, int most, double least_begin = 0.0) {
  const auto first = static_cast<int>(net.src.size());
  for (int n = 1 + pick(rng, most); n > 0; --n) {
    const int src = pick(rng, hosts), dst = pick(rng, hosts);
    const std::int64_t bytes = one_of<std::int64_t>(rng, {0, 1, 1, 4096, 10'000, 100'000, 400'000});
    const int lane = net.lane(src, dst, bytes, random_way(rng, net, src, dst), least_begin + one_of(rng, {0.0, 0.0, 3e-6, 1e-4}),
                              one_of<std::int64_t>(rng, {0, 5000, 65536}));
    net.window[static_cast<std::size_t>(lane)] = one_of(rng, {0, 0, 1, 3});
    net.delay[static_cast<std::size_t>(lane)] = one_of(rng, {0.0, 0.0, 1e-6});
    net.lane_rate[static_cast<std::size_t>(lane)] = one_of(rng, {1e18, 1e18, 1e9, 6.25e9});
    if (holds) net.hold.push_back(one_of(rng, {0.0, 1e-6, 1e-4}));
    for (int on = first; on < lane; ++on)  // earlier lanes that end here: never a circle
      if (net.dst[static_cast<std::size_t>(on)] == src && pick(rng, 3) == 0)
        net.after(on - first, one_of<std::int64_t>(rng, {wt::net::kAll, 0, 1, -1}));
  }
}

Options random_options(Rng& rng) {
  Options o;
  o.mtu = one_of(rng, {256, 1500, 4096});
  o.header = one_of(rng, {0, 58});
  o.control = one_of(rng, {1, 64, 64, 1024});
  o.loss = one_of(rng, {Loss::kPause, Loss::kPause, Loss::kDrop, Loss::kCredits});
  o.buffer = one_of(rng, {5e6, 32e6});
  o.alpha = one_of(rng, {0.02, 0.125, 1.0});
  if (pick(rng, 3) == 0) o.xoff = 20e3, o.xon = 12e3;
  if (pick(rng, 2) == 0) o.ecn = {{12.5e9, 20e3, 60e3, 0.5}};
  o.control_name = one_of<const char*>(rng, {"none", "none", "dcqcn", "hpcc", "swift", "timely"});
  o.recovery = one_of(rng, {Recovery::kGoBackN, Recovery::kSelective});
  o.ack_every = one_of(rng, {1, 1, 5});
  o.timeouts = {3e-4, 2e-3};
  o.retries = 250;
  o.spread = one_of(rng, {Spread::kPath, Spread::kPath, Spread::kRound, Spread::kRandom, Spread::kAdaptive, Spread::kFlowlet});
  o.flowlet_gap = 2e-6;
  o.seed = rng();
  if (pick(rng, 2) == 0) o.sample = 7e-6, o.sample_links = {0}, o.sample_lanes = {0};
  return o;
}

Faults random_faults(Rng& rng, Net& net) {
  Faults f;
  const auto links = static_cast<int>(net.from.size());
  if (pick(rng, 4) == 0) f.loss.assign(net.from.size(), 0.01);
  for (int n = pick(rng, 3) == 0 ? 1 + pick(rng, 3) : 0; n > 0; --n) {
    const int link = pick(rng, links);
    const double at = 1e-6 * pick(rng, 100);
    f.flaps.push_back({at, link, false});
    f.flaps.push_back({at + 1e-6 * (1 + pick(rng, 100)), link, true});
  }
  const auto lanes = static_cast<int>(net.src.size());
  for (int n = pick(rng, 3) == 0 ? 1 + pick(rng, 4) : 0; n > 0; --n) {
    const int lane = pick(rng, lanes);
    if (net.src[lane] == net.dst[lane]) continue;
    const auto way = random_way(rng, net, net.src[lane], net.dst[lane]);
    f.detours.push_back({1e-6 * pick(rng, 60) + 1e-9 * pick(rng, 1000), lane, static_cast<int>(net.path_start.size()) - 1});
    net.path_links.insert(net.path_links.end(), way.begin(), way.end());
    net.path_start.push_back(static_cast<std::int64_t>(net.path_links.size()));
  }
  return f;
}

void require(bool ok, const char* law) {
  if (!ok) throw std::logic_error(law);
}

bool same(const Result& a, const Result& b) {
  return a.delivered == b.delivered && a.acked == b.acked && a.link_data == b.link_data && a.link_control == b.link_control &&
         a.link_peak == b.link_peak && a.link_paused == b.link_paused && a.end == b.end &&
         std::memcmp(&a.stats, &b.stats, sizeof a.stats) == 0 && a.queue == b.queue && a.rate == b.rate;
}

// True if all lanes ended, false if the run said why not.
bool check_run(Rng& rng) {
  int hosts = 0;
  Net net = random_graph(rng, hosts);
  random_lanes(rng, net, hosts, pick(rng, 3) == 0, 20);
  Options o = random_options(rng);
  const Faults f = random_faults(rng, net);
  const auto attempt = [&](Result& r) -> std::string {
    try {
      r = run(net.graph(), net.paths(), net.lanes(), o, f);
    } catch (const wt::Error& error) {
      return error.what();
    }
    return {};
  };
  Result one, many;
  o.parts = 1;
  const std::string why = attempt(one);
  if (!why.empty())
    require(why.find("in a circle of nodes") != std::string::npos || why.find("gave up") != std::string::npos ||
                why.find("smaller than the reserves") != std::string::npos,
            why.c_str());
  for (const auto& [parts, threads] : {std::pair{2, 2}, {3, 1}, {5, 2}, {0, 3}, {8, 8}}) {
    o.parts = parts;
    o.threads = threads;
    require(attempt(many).empty() == why.empty(), "all numbers of threads end or none");
    if (why.empty()) require(same(one, many), "the number of partitions and threads changes nothing");
  }
  if (!why.empty()) return false;
  const bool whole = f.loss.empty() && f.flaps.empty() && f.detours.empty() && o.loss != Loss::kDrop;
  if (whole) require(one.stats.drops == 0 && one.stats.losses == 0, "nothing is lost in a lossless fabric");
  for (std::size_t k = 0; k < net.src.size(); ++k)
    require(one.delivered[k] >= net.begin[k] && (!net.hold.empty() || one.acked[k] >= one.delivered[k]),
            "a lane ends after it begins");
  for (std::size_t l = 0; l < net.from.size(); ++l)
    require(static_cast<double>(one.link_data[l] + one.link_control[l]) <= net.rate[l] * one.end * (1 + 1e-9) + 1,
            "no link is faster than it is");
  if (whole && o.spread == Spread::kPath && one.stats.retransmits == 0) {  // every packet crosses every link of its way once
    std::int64_t hops = 0;
    for (std::size_t k = 0; k < net.src.size(); ++k) {
      const std::int64_t links = net.path_start[k + 1] - net.path_start[k], slice = net.slice[k], rest = net.bytes[k] % slice;
      const std::int64_t packets = net.bytes[k] / slice * ((slice + o.mtu - 1) / o.mtu) + (rest + o.mtu - 1) / o.mtu;
      hops += links * std::max<std::int64_t>(1, packets);
    }
    require(one.stats.data_hops == hops, "every sent packet arrives once");
  }
  return true;
}

bool same(const PlanReport& a, const PlanReport& b) {
  return a.link_data == b.link_data && a.link_control == b.link_control && a.link_peak == b.link_peak &&
         a.link_paused == b.link_paused && a.starts == b.starts && a.total == b.total && a.longest == b.longest &&
         std::memcmp(&a.stats, &b.stats, sizeof a.stats) == 0 && a.loads.link == b.loads.link && a.loads.tag == b.loads.tag &&
         a.loads.bytes.values == b.loads.bytes.values && a.loads.queue.values == b.loads.queue.values &&
         a.loads.tag_bytes == b.loads.tag_bytes;
}

struct Fed {
  std::vector<wt::net::Completion> ends;
  PlanReport report;
  std::string why;
};

Fed feed_once(const PlanTable& table, const Options& o, const Faults& f, const std::vector<packet_net::Launch>& launches) {
  Fed fed;
  try {
    PacketNetwork network(table, o, f);
    fed.ends = packet_net::feed(network, launches);
    network.finish();
    fed.report = network.report();
  } catch (const wt::Error& error) {
    fed.why = error.what();
  }
  return fed;
}

// Plans launched while others run, some of them when another has ended. True if all of them ended.
bool check_fed(Rng& rng) {
  int hosts = 0;
  Net net = random_graph(rng, hosts);
  const bool holds = pick(rng, 3) == 0;
  const double least = one_of(rng, {0.0, 1.5e-7, 1e-6, 1e-6, 7e-6});
  std::vector<std::int64_t> plan_start{0};
  for (int n = 1 + pick(rng, 5); n > 0; --n) {
    random_lanes(rng, net, hosts, holds, 8, least);
    plan_start.push_back(static_cast<std::int64_t>(net.src.size()));
  }
  Options o = random_options(rng);
  o.sample = 0, o.sample_links = {}, o.sample_lanes = {};
  o.loads = pick(rng, 3) == 0;
  o.few = 0;
  const Faults f = random_faults(rng, net);
  const PlanTable table = packet_net::table_of(net, plan_start);
  std::vector<packet_net::Launch> launches;
  for (int n = 1 + pick(rng, 12); n > 0; --n) {
    const int number = static_cast<int>(launches.size()), plan = pick(rng, static_cast<int>(plan_start.size()) - 1);
    const bool after = number > 0 && pick(rng, 3) > 0;
    launches.push_back({plan, one_of(rng, {0.0, 0.0, 5e-7, 1e-6, 1.23456e-5, 1e-4}), after ? pick(rng, number) : -1});
  }
  o.parts = 1;
  o.most_ahead = 0;
  const Fed one = feed_once(table, o, f, launches);
  o.most_ahead = 1;
  for (const auto& [parts, threads] : {std::pair{1, 1}, {2, 2}, {3, 1}, {5, 2}, {0, 3}, {8, 8}}) {
    o.parts = parts;
    o.threads = threads;
    const Fed many = feed_once(table, o, f, launches);
    require(many.why.empty() == one.why.empty(), "fed: all numbers of threads end or none");
    if (!one.why.empty()) continue;
    require(many.ends.size() == one.ends.size(), "fed: as many ends");
    for (std::size_t i = 0; i < one.ends.size(); ++i)
      require(many.ends[i].id == one.ends[i].id && many.ends[i].end == one.ends[i].end, "fed: the same ends in the same order");
    require(same(one.report, many.report), "fed: the same packets");
  }
  return one.why.empty();
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : 500;
  const auto seed = static_cast<std::uint64_t>(argc > 2 ? std::atoll(argv[2]) : 1);
  int ended = 0, fed = 0;
  for (int n = 0; n < runs; ++n) {
    Rng rng(seed * 1000003 + static_cast<std::uint64_t>(n));
    try {
      ended += check_run(rng) ? 1 : 0;
      fed += check_fed(rng) ? 1 : 0;
    } catch (const std::exception& error) {
      std::cerr << "run " << n << " of seed " << seed << ": " << error.what() << "\n";
      return EXIT_FAILURE;
    }
  }
  std::cout << runs << " runs, " << ended << " of them end, the others say why not; of as many that are fed, " << fed << " end\n";
  return EXIT_SUCCESS;
}
