#include "net/packet/world.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/check.h"

namespace wt::net::packet {

namespace {

constexpr double kLongest = 4e6;  // s: int64 picoseconds with room to add

Time picoseconds(double seconds, const char* what, std::size_t row) {
  if (!(seconds >= 0.0) || seconds > kLongest)
    fail("packet engine: ", what, " of row ", row, " is ", seconds, " s; 0 to ", kLongest, " allowed");
  return static_cast<Time>(std::llround(seconds / kPicosecond));
}

void check(const Options& o) {
  const auto range = [](const char* name, double got, double least, double most) {
    if (!(got >= least && got <= most)) fail("packet engine: ", name, " is ", got, "; ", least, " to ", most, " allowed");
  };
  range("mtu", o.mtu, 1, 32768);
  range("header", o.header, 0, 4096);
  range("control frame", o.control, 1, 1024);
  range("buffer", o.buffer, 1, 1e12);
  range("buffer time", o.buffer_time, 0, 1);
  range("inner buffer", o.inner_buffer, 1, 1e12);
  range("alpha", o.alpha, 1.0 / 65536, 65536);
  range("reserve", o.reserve, 0, 1e9);
  range("resume", o.resume, 0, 1e9);
  range("xoff", o.xoff, 0, 1e9);
  range("xon", o.xon, 0, o.xoff);
  range("credit", o.credit, 0, 1e9);
  for (const Marking& m : o.ecn) {
    range("rate of a marking", m.rate, 0, 1e15);
    range("kmin", m.kmin, 0, 1e12);
    range("kmax", m.kmax, m.kmin, 1e12);
    range("pmax", m.pmax, 0, 1);
  }
  range("reorder", o.reorder, 0, 1e9);
  range("NACK interval", o.nack_interval, 0, 1e6);
  range("flowlet gap", o.flowlet_gap, 0, 1e6);
  range("ack_every", o.ack_every, 1, 65536);
  range("threads", o.threads, 1, 1024);
  range("partitions", o.parts, 0, 1024);
  range("most time ahead", o.most_ahead, 0, 1e6);
  range("retries", o.retries, 0, 250);
  if (o.timeouts.empty()) fail("packet engine: no retransmission timeout given");
  for (const double t : o.timeouts) range("timeout", t, 1e-9, 1e6);
}

}  // namespace

World::World(const fabric::Graph& g, const Paths& p, const Lanes& l, const Options& o, const Faults& f)
    : graph(g), paths(p), lanes(l), options(o), faults(f) {
  check(options);
  full = options.mtu + options.header;
  reorder = options.reorder > 0 ? static_cast<std::uint32_t>(options.reorder) : options.spread == Spread::kPath ? 1 : 1024;
  lossy_links = !faults.loss.empty() || !faults.bit_error.empty() || !faults.flaps.empty();
  reserve = options.xoff > 0 ? 0 : static_cast<std::int64_t>(options.reserve);
  resume = static_cast<std::int64_t>(options.resume);
  resume_at = static_cast<std::int64_t>(options.xon);
  control_size = static_cast<std::uint16_t>(options.control);
  nack_interval = picoseconds(options.nack_interval, "NACK interval", 0);
  for (const double t : options.timeouts) timeouts.push_back(picoseconds(t, "timeout", timeouts.size()));
  for (const Flap& flap : faults.flaps) {
    if (flap.link < 0 || static_cast<std::size_t>(flap.link) >= graph.links()) fail("packet engine: a flap names link ", flap.link);
    flap_times.push_back(picoseconds(flap.time, "time of flaps, flap", flap_times.size()));
  }
  for (const Detour& d : faults.detours)
    detour_times.push_back(picoseconds(d.time, "time of detours, detour", detour_times.size()));
  for (const std::vector<double>* rates : {&faults.loss, &faults.bit_error}) {
    if (!rates->empty() && rates->size() != graph.links())
      fail("packet engine: error rates of ", rates->size(), " links for ", graph.links());
    for (const double x : *rates)
      if (!(x >= 0.0 && x <= 1.0)) fail("packet engine: an error rate is ", x, "; 0 to 1 allowed");
  }
  for (const std::int32_t link : options.sample_links)
    if (link < 0 || static_cast<std::size_t>(link) >= graph.links()) fail("packet engine: the series name link ", link);
  for (const std::int32_t lane : options.sample_lanes)
    if (lane < 0 || static_cast<std::size_t>(lane) >= lanes.src.size()) fail("packet engine: the series name lane ", lane);
  if (!options.tags.empty() && options.tags.size() != lanes.src.size())
    fail("packet engine: ", options.tags.size(), " tags of ", lanes.src.size(), " lanes");
  counts = options.loads;
  if (counts) loads.resize(graph.links());
  link_tracks.resize(options.sample_links.size());
  lane_tracks.resize(options.sample_lanes.size());
  build_links();
  build_buffers();
  build_lanes();
  if (options.spread != Spread::kPath) build_direct();
  controls.push_back(make_control(options.control_name, options.control_settings, static_cast<std::int32_t>(lanes.src.size())));
  flowlet_gap = picoseconds(options.flowlet_gap, "flowlet gap", 0);
  telemetry = controls[0]->wants_telemetry();
  notify = controls[0]->wants_notifications();
  notify_interval = controls[0]->notification_interval();
  if (notify && controls[0]->notifications_per_port()) port_notified.assign(graph.links(), kLongAgo);
}

Time World::span() const {
  Time most = 0;
  for (const Link& link : links)
    if (link.latency < 20'000'000) most = std::max(most, link.latency + serial(link.cost, static_cast<std::uint64_t>(full)));
  return most + most / 4;
}

void World::build_links() {
  const std::size_t n = graph.links();
  links.resize(n);
  if (lossy_links) frames.resize(2 * n);
  info.resize(n);
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::int32_t>> between;  // cables of a pair of nodes, by number
  for (std::size_t i = 0; i < n; ++i) {
    const double rate = graph.link_rate[i];
    if (!(rate >= 1e4 && rate <= 1e15)) fail("packet engine: link ", i, " has a rate of ", rate, " B/s; 1e4 to 1e15 allowed");
    Link& link = links[i];
    link.rate = rate;
    link.cost = static_cast<std::uint64_t>(std::ceil(std::ldexp(1.0 / (rate * kPicosecond), kCostBits) * (1 - 1e-15)));
    link.latency = picoseconds(graph.link_latency[i], "latency of links, link", i);
    if (graph.link_up[i] == 0) link.stopped = kDown;
    if (!options.ecn.empty() && is_switch(graph.link_from[i])) {
      const auto off = [&](const Marking& m) { return m.rate > 0 ? std::abs(std::log(rate / m.rate)) : 0.0; };
      const Marking& m = *std::min_element(options.ecn.begin(), options.ecn.end(),
                                           [&](const Marking& a, const Marking& b) { return off(a) < off(b); });
      const double scale = m.rate > 0 ? rate / m.rate : 1.0;
      link.kmin = static_cast<std::int64_t>(m.kmin * scale);
      link.kmax = static_cast<std::int64_t>(m.kmax * scale);
      link.pmax = m.pmax;
    }
    info[i].from = graph.link_from[i];
    info[i].to = graph.link_to[i];
    between[{info[i].from, info[i].to}].push_back(static_cast<std::int32_t>(i));
  }
  for (const auto& [ends, here] : between) {
    const auto back = between.find({ends.second, ends.first});
    if (back == between.end()) continue;
    for (std::size_t k = 0; k < here.size(); ++k) info[here[k]].reverse = back->second[std::min(k, back->second.size() - 1)];
  }
  out_start.assign(graph.nodes() + 1, 0);
  for (const LinkInfo& i : info) ++out_start[i.from + 1];
  for (std::size_t i = 0; i < graph.nodes(); ++i) out_start[i + 1] += out_start[i];
  out.resize(n);
  std::vector<std::int32_t> at(out_start.begin(), out_start.end() - 1);
  for (std::size_t i = 0; i < n; ++i) out[at[info[i].from]++] = static_cast<std::int32_t>(i);
}

void World::build_buffers() {
  nodes.resize(graph.nodes());
  ingress.resize(graph.links());
  std::vector<double> ports(nodes.size(), 0.0);  // B/s into each node
  for (std::size_t l = 0; l < ingress.size(); ++l) ports[info[l].to] += links[l].rate;
  std::vector<std::int64_t> whole(nodes.size(), 0);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const bool outside = is_switch(static_cast<std::int32_t>(i));
    nodes[i].loss = outside ? options.loss : Loss::kPause;
    const double shared = std::min(1e15, std::max(options.buffer, options.buffer_time * ports[i]));
    nodes[i].pool = whole[i] = static_cast<std::int64_t>(outside ? shared : options.inner_buffer);
    nodes[i].fixed = outside ? static_cast<std::int64_t>(options.xoff) : 0;
    nodes[i].alpha = outside ? static_cast<std::int64_t>(options.alpha * 65536) : 65536;
  }
  const auto packet = static_cast<double>(full);
  credit_step = 2 * full;
  for (std::size_t i = 0; i < ingress.size(); ++i) {
    Node& node = nodes[info[i].to];
    node.watched = node.loss == Loss::kCredits;
    if (info[i].reverse < 0) continue;
    if (node.loss == Loss::kCredits) {  // a round trip on the cable, what is told late, and packets in service at both ends
      const double trip = static_cast<double>(links[i].latency + links[info[i].reverse].latency) * kPicosecond * links[i].rate;
      links[i].credits = static_cast<std::int64_t>(options.credit > 0 ? options.credit : 2 * trip + 16 * packet);
      links[i].granted = links[i].credits;
      if (links[i].credits < 4 * full)
        fail("packet engine: credit of ", links[i].credits, " B; at least four packets (", 4 * full, " B) needed");
    }
    if (node.loss != Loss::kPause) continue;
    // from the threshold on: a packet in service and frames before the pause, there and back on the cable, a packet that begins as
    // the pause arrives; and one more, since thresholds are crossed by whole packets
    const Link& link = links[i];
    const Link& back = links[info[i].reverse];
    const double wait = static_cast<double>(serial(back.cost, static_cast<std::uint64_t>(full + 4 * options.control)) +
                                            back.latency + link.latency);
    const double need = wait * kPicosecond * link.rate + 2 * packet;
    ingress[i].room =
        static_cast<std::int32_t>(std::min(1e9, options.headroom >= 0 && is_switch(info[i].to) ? options.headroom : need));
    if (is_switch(info[i].to)) node.pool -= ingress[i].room + static_cast<std::int64_t>(options.reserve);
  }
  const auto least = std::min_element(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) { return a.pool < b.pool; });
  if (least != nodes.end() && least->pool <= 0)
    fail("packet engine: the buffer of node ", least - nodes.begin(), " (", whole[static_cast<std::size_t>(least - nodes.begin())],
         " B) is smaller than the reserves and headroom of its ports; it lacks ", 1 - least->pool, " B");
}

void World::build_lanes() {
  const std::size_t k = lanes.src.size();
  senders.resize(k);
  receivers.resize(k);
  gates.resize(k);
  delivered.assign(k, kForever);
  acked.assign(k, kForever);
  if (std::any_of(lanes.delay.begin(), lanes.delay.end(), [](double d) { return d > 0; })) pending.resize(k);
  if (!lanes.hold.empty() && lanes.hold.size() != k) fail("packet engine: ", lanes.hold.size(), " holds of ", k, " lanes");
  for (std::size_t i = 0; i < lanes.hold.size(); ++i) hold.push_back(picoseconds(lanes.hold[i], "hold of lanes, lane", i));
  if (options.recovery == Recovery::kSelective) {
    recover.resize(k);
    arrived.resize(k);
  }
  way.resize(paths.links.size());
  for (std::size_t i = 0; i < way.size(); ++i) way[i] = static_cast<std::uint32_t>(paths.links[i]);
  for (std::size_t p = 0; p + 1 < paths.start.size(); ++p)
    if (paths.start[p] < paths.start[p + 1]) way[paths.start[p]] |= kFirst;
  for (std::size_t i = 0; i < k; ++i) {
    const std::int64_t bytes = lanes.bytes[i], slice = lanes.slice[i];
    if (bytes < 0 || slice <= 0) fail("packet engine: lane ", i, " has ", bytes, " B in slices of ", slice, " B");
    if (!(lanes.rate[i] > 0)) fail("packet engine: lane ", i, " has a rate of ", lanes.rate[i], " B/s");
    const std::int64_t first = paths.start[lanes.path[i]], end = paths.start[lanes.path[i] + 1];
    if (end - first > 200) fail("packet engine: the path of lane ", i, " has ", end - first, " links; at most 200 allowed");
    Sender& s = senders[i];
    const std::int64_t part = std::min(std::max<std::int64_t>(bytes, 1), slice);  // an empty lane is one empty packet
    const std::int64_t per = (part + options.mtu - 1) / options.mtu;
    const std::int64_t slices = bytes == 0 ? 1 : (bytes + slice - 1) / slice;
    const std::int64_t rest = bytes - (slices - 1) * slice;
    const std::int64_t total = (slices - 1) * per + std::max<std::int64_t>(1, (rest + options.mtu - 1) / options.mtu);
    if (total > 4'000'000'000) fail("packet engine: lane ", i, " has ", total, " packets; at most 4e9 allowed");
    s.per = static_cast<std::uint32_t>(per);
    s.total = static_cast<std::uint32_t>(total);
    s.tail = static_cast<std::uint16_t>(part - (per - 1) * options.mtu);
    s.last = static_cast<std::uint16_t>(rest == 0 ? 0 : rest - (rest - 1) / options.mtu * options.mtu);
    if (bytes == 0) s.tail = 0;
    s.rate = lanes.rate[i];
    s.hop = static_cast<std::uint32_t>(first);
    s.hops = static_cast<std::uint16_t>(end - first);
    receivers[i].total = s.total;
    receivers[i].per = s.per;
    gates[i].slices = slices;
    gates[i].begin = picoseconds(lanes.begin[i], "begin of lanes, lane", i);
    gates[i].delay = picoseconds(lanes.delay[i], "delay of lanes, lane", i);
    gates[i].window = lanes.window[i];
    for (std::int64_t at = first; at < end; ++at) {
      const std::int32_t link = paths.links[at];
      if (link < 0 || static_cast<std::size_t>(link) >= links.size())
        fail("packet engine: path ", lanes.path[i], " names link ", link);
      if (info[link].reverse < 0) fail("packet engine: lane ", i, " uses link ", link, ", which has no way back for ACKs");
      if (at > first && info[paths.links[at - 1]].to != info[link].from)
        fail("packet engine: path ", lanes.path[i], ": link ", link, " does not begin where link ", paths.links[at - 1], " ends");
    }
    if (first == end) continue;
    s.link = paths.links[first];
    build_source(s.link);
  }
  for (const Detour& d : faults.detours) {
    if (d.lane < 0 || static_cast<std::size_t>(d.lane) >= k) fail("packet engine: a detour names lane ", d.lane, " of ", k);
    if (d.path < 0 || static_cast<std::size_t>(d.path) + 1 >= paths.start.size())
      fail("packet engine: a detour names path ", d.path);
    if (paths.start[d.path] == paths.start[d.path + 1]) fail("packet engine: the detour of lane ", d.lane, " has no links");
    build_source(paths.links[paths.start[d.path]]);
  }
  after_start.assign(k + 1, 0);
  for (const std::int32_t d : lanes.dep_lane) {
    if (d < 0 || static_cast<std::size_t>(d) >= k) fail("packet engine: a dependency names lane ", d, " of ", k);
    ++after_start[d + 1];
  }
  for (std::size_t i = 0; i < k; ++i) after_start[i + 1] += after_start[i];
  after.resize(lanes.dep_lane.size());
  std::vector<std::int64_t> at(after_start.begin(), after_start.end() - 1);
  for (std::size_t i = 0; i < k; ++i)
    for (std::int64_t d = lanes.dep_start[i]; d < lanes.dep_start[i + 1]; ++d) {
      const std::int32_t on = lanes.dep_lane[d];
      if (lanes.dst[on] != lanes.src[i])
        fail("packet engine: lane ", i, " depends on lane ", on, ", which does not end where lane ", i, " starts");
      after[at[on]++] = static_cast<std::int32_t>(i);
    }
}

void World::build_source(std::int32_t link) {
  if (links[link].source >= 0) return;
  links[link].source = static_cast<std::int32_t>(sources.size());
  sources.emplace_back();
}

void World::make_patterns() {
  copy_of.resize(lanes.src.size());
  for (std::size_t i = 0; i < copy_of.size(); ++i) copy_of[i] = static_cast<std::uint32_t>(i);
  instance.assign(copy_of.size(), -1);
  controls.clear();
}

void World::set_path(std::uint32_t pair, std::int32_t path) {
  Sender& s = senders[pair];
  s.hop = static_cast<std::uint32_t>(paths.start[path]);
  s.hops = static_cast<std::uint16_t>(paths.start[path + 1] - paths.start[path]);
  s.link = paths.links[paths.start[path]];
}

std::uint32_t World::copy(std::uint32_t first, std::uint32_t last, std::int32_t of_instance, std::uint32_t at) {
  const bool fresh = at == kAtEnd;
  if (fresh) at = static_cast<std::uint32_t>(senders.size());
  for (std::uint32_t i = first; i < last; ++i) {
    const std::uint32_t pair = at + (i - first);
    if (fresh) {
      senders.push_back(senders[i]);
      receivers.push_back(receivers[i]);
      gates.push_back(gates[i]);
      copy_of.push_back(i);
      instance.push_back(of_instance);
      delivered.push_back(kForever);
      acked.push_back(kForever);
      if (!pending.empty()) pending.emplace_back();
      if (!recover.empty()) recover.emplace_back(), arrived.emplace_back();
      if (!direct.empty()) direct.push_back(direct[i]);
    } else {
      senders[pair] = senders[i];
      receivers[pair] = receivers[i];
      gates[pair] = gates[i];
      instance[pair] = of_instance;
      delivered[pair] = acked[pair] = kForever;
    }
  }
  while (controls.size() << kRowBits < senders.size())
    controls.push_back(make_control(options.control_name, options.control_settings, 1 << kRowBits));
  return at;
}

}  // namespace wt::net::packet
