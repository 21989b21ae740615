// The packet engine, for Python.
#include <cstdint>
#include <ctime>
#include <utility>
#include <vector>

#include "base/check.h"
#include "bind/columns.h"
#include "bind/graph.h"
#include "bind/network.h"
#include "bind/parts.h"
#include "net/packet/engine.h"
#include "net/packet/network.h"
#include "net/replay/packets.h"

namespace wt::bind {

namespace {

using namespace wt::net::packet;
using wt::net::replay::ReplayPackets;

template <class T>
std::vector<T> copy_of(std::span<const T> values) {
  return {values.begin(), values.end()};
}

template <class T>
void field(const nb::dict& from, const char* name, T& to) {
  if (!from.contains(name)) fail("packet options: ", name, " is missing");
  if (!nb::try_cast<T>(from[name], to)) fail("packet options: ", name, " has the wrong type");
}

template <class E>
E code(const nb::dict& from, const char* name) {
  int value = 0;
  field(from, name, value);
  return static_cast<E>(value);
}

template <class T>
std::vector<T> numbers(const nb::dict& from, const char* name) {
  std::vector<T> out;
  nb::object row = from[name];
  for (const nb::handle item : row) out.push_back(nb::cast<T>(item));
  return out;
}

Options options_of(const nb::dict& d) {
  Options o;
  field(d, "mtu", o.mtu);
  field(d, "header", o.header);
  field(d, "control", o.control);
  o.loss = code<Loss>(d, "loss");
  field(d, "buffer", o.buffer);
  field(d, "buffer_time", o.buffer_time);
  field(d, "inner_buffer", o.inner_buffer);
  field(d, "alpha", o.alpha);
  field(d, "reserve", o.reserve);
  field(d, "resume", o.resume);
  field(d, "headroom", o.headroom);
  field(d, "xoff", o.xoff);
  field(d, "xon", o.xon);
  field(d, "credit", o.credit);
  for (const nb::handle row : nb::cast<nb::object>(d["ecn"])) {
    const nb::tuple m = nb::cast<nb::tuple>(row);
    o.ecn.push_back({nb::cast<double>(m[0]), nb::cast<double>(m[1]), nb::cast<double>(m[2]), nb::cast<double>(m[3])});
  }
  o.control_name = nb::cast<const char*>(nb::object(d["algorithm"]));
  for (const nb::handle row : nb::cast<nb::object>(d["parameters"])) {
    const nb::tuple p = nb::cast<nb::tuple>(row);
    o.control_settings.push_back({nb::cast<const char*>(p[0]), nb::cast<double>(p[1])});
  }
  o.recovery = code<Recovery>(d, "recovery");
  field(d, "ack_every", o.ack_every);
  field(d, "nack_interval", o.nack_interval);
  field(d, "reorder", o.reorder);
  o.timeouts = numbers<double>(d, "timeouts");
  field(d, "retries", o.retries);
  o.spread = code<Spread>(d, "spread");
  field(d, "flowlet_gap", o.flowlet_gap);
  field(d, "seed", o.seed);
  field(d, "threads", o.threads);
  field(d, "skip", o.skip);
  field(d, "sample", o.sample);
  o.sample_links = numbers<std::int32_t>(d, "sample_links");
  o.sample_lanes = numbers<std::int32_t>(d, "sample_lanes");
  field(d, "loads", o.loads);
  o.tags = numbers<std::int32_t>(d, "tags");
  return o;
}

Faults faults_of(const nb::dict& d) {
  Faults f;
  for (const nb::handle row : nb::cast<nb::object>(d["flaps"])) {
    const nb::tuple t = nb::cast<nb::tuple>(row);
    f.flaps.push_back({nb::cast<double>(t[0]), nb::cast<std::int32_t>(t[1]), nb::cast<bool>(t[2])});
  }
  for (const nb::handle row : nb::cast<nb::object>(d["detours"])) {
    const nb::tuple t = nb::cast<nb::tuple>(row);
    f.detours.push_back({nb::cast<double>(t[0]), nb::cast<std::int32_t>(t[1]), nb::cast<std::int32_t>(t[2])});
  }
  f.loss = numbers<double>(d, "loss");
  f.bit_error = numbers<double>(d, "bit_error");
  return f;
}

// Columns of lanes and paths as Python hands them over, checked for length and kept alive.
class LaneColumns {
 public:
  explicit LaneColumns(const nb::dict& d)
      : src_(take<std::int32_t>(d, "src")),
        dst_(take<std::int32_t>(d, "dst")),
        path_(take<std::int32_t>(d, "path")),
        bytes_(take<std::int64_t>(d, "bytes")),
        slice_(take<std::int64_t>(d, "slice")),
        window_(take<std::int32_t>(d, "window")),
        delay_(take<double>(d, "delay")),
        rate_(take<double>(d, "rate")),
        begin_(take<double>(d, "begin")),
        group_(take<std::int32_t>(d, "group")),
        dep_start_(take<std::int64_t>(d, "dep_start")),
        dep_lane_(take<std::int32_t>(d, "dep_lane")),
        dep_lead_(take<std::int64_t>(d, "dep_lead")),
        hold_(take<double>(d, "hold")),
        path_start_(take<std::int64_t>(d, "path_start")),
        path_links_(take<std::int32_t>(d, "path_links")) {
    const std::size_t k = src_.size();
    for (const std::size_t n : {dst_.size(), path_.size(), bytes_.size(), slice_.size(), window_.size(), delay_.size(),
                                rate_.size(), begin_.size(), group_.size()})
      if (n != k) fail("packet engine: columns of lanes have ", k, " and ", n, " rows");
    if (dep_start_.size() != k + 1 || dep_lane_.size() != dep_lead_.size())
      fail("packet engine: dep_start has ", dep_start_.size(), " rows for ", k, " lanes");
    check_starts("dep_start", dep_start_, dep_lane_.size());
    check_starts("path_start", path_start_, path_links_.size());
    for (std::size_t i = 0; i < k; ++i)
      if (path_.data()[i] < 0 || static_cast<std::size_t>(path_.data()[i]) + 1 >= path_start_.size())
        fail("packet engine: lane ", i, " has path ", path_.data()[i]);
  }
  [[nodiscard]] wt::net::Lanes lanes() const {
    return {span_of(src_),       span_of(dst_),      span_of(path_),     span_of(bytes_), span_of(slice_),
            span_of(window_),    span_of(delay_),    span_of(rate_),     span_of(begin_), span_of(group_),
            span_of(dep_start_), span_of(dep_lane_), span_of(dep_lead_), span_of(hold_)};
  }
  [[nodiscard]] wt::net::Paths paths() const { return {span_of(path_start_), span_of(path_links_)}; }
  void check_endpoints(std::size_t endpoints) const {
    for (const auto* column : {&src_, &dst_})
      for (std::size_t i = 0; i < column->size(); ++i)
        if (column->data()[i] < 0 || static_cast<std::size_t>(column->data()[i]) >= endpoints)
          fail("packet engine: lane ", i, " names endpoint ", column->data()[i], " of ", endpoints);
  }

 private:
  template <class T>
  static Column<T> take(const nb::dict& columns, const char* name) {
    Column<T> column;
    if (!columns.contains(name) || !nb::try_cast<Column<T>>(columns[name], column, false))
      fail("lanes.", name, " must be a contiguous one-dimensional array of ", sizeof(T), "-byte numbers");
    return column;
  }
  static void check_starts(const char* name, const Column<std::int64_t>& starts, std::size_t size) {
    if (starts.size() == 0 || starts.data()[0] != 0 || starts.data()[starts.size() - 1] != static_cast<std::int64_t>(size))
      fail("packet engine: ", name, " must go from 0 to ", size);
    for (std::size_t i = 1; i < starts.size(); ++i)
      if (starts.data()[i] < starts.data()[i - 1]) fail("packet engine: ", name, " falls at row ", i);
  }

  Column<std::int32_t> src_, dst_, path_;
  Column<std::int64_t> bytes_, slice_;
  Column<std::int32_t> window_;
  Column<double> delay_, rate_, begin_;
  Column<std::int32_t> group_;
  Column<std::int64_t> dep_start_;
  Column<std::int32_t> dep_lane_;
  Column<std::int64_t> dep_lead_;
  Column<double> hold_;
  Column<std::int64_t> path_start_;
  Column<std::int32_t> path_links_;
};

void check_signals() {
  const nb::gil_scoped_acquire held;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

nb::dict stats_of(const Stats& s) {
  nb::dict out;
  out["data_packet_hops"] = s.data_hops;
  out["ack_packet_hops"] = s.ack_hops;
  out["control_packet_hops"] = s.control_hops;
  out["events"] = s.events;
  out["drops"] = s.drops;
  out["losses"] = s.losses;
  out["pfc_pauses"] = s.pauses;
  out["host_pauses"] = s.inner_pauses;
  out["ecn_marks"] = s.marks;
  out["cnps"] = s.notifications;
  out["retransmits"] = s.retransmits;
  out["timeouts"] = s.timeouts;
  out["out_of_order"] = s.out_of_order;
  out["repeats"] = s.repeats;
  return out;
}

// Series of links that carried something, and (link, tag, bytes) of what sent it.
void put_loads(nb::dict& to, Loads&& loads) {
  const std::size_t rows = loads.link.size(), bins = loads.bytes.bins;
  to["bin_width"] = loads.bytes.width;
  to["bin_link"] = array_of(std::move(loads.link));
  to["bin_bytes"] = array_of(std::move(loads.bytes.values), {rows, bins});
  to["bin_queue"] = array_of(std::move(loads.queue.values), {rows, bins});
  to["tag_link"] = array_of(std::move(loads.tag_link));
  to["tag"] = array_of(std::move(loads.tag));
  to["tag_bytes"] = array_of(std::move(loads.tag_bytes));
}

nb::dict packet_run(const nb::dict& graph, const nb::dict& lanes, const nb::dict& options, const nb::dict& faults,
                    const nb::object& progress) {
  const GraphColumns columns(graph);
  const LaneColumns traffic(lanes);
  const wt::fabric::Graph view = columns.view();
  wt::fabric::validate(view);
  traffic.check_endpoints(view.endpoints());
  const Options o = options_of(options);
  const Faults f = faults_of(faults);
  const Poll poll = [&](double share) {
    check_signals();
    if (progress.is_none()) return false;
    const nb::gil_scoped_acquire held;
    return nb::cast<bool>(nb::bool_(progress(share)));
  };
  Result r;
  const std::clock_t started = std::clock();
  {
    const nb::gil_scoped_release released;
    r = wt::net::packet::run(view, traffic.paths(), traffic.lanes(), o, f, poll);
  }
  nb::dict out;
  nb::dict stats = stats_of(r.stats);
  stats["cpu_s"] = static_cast<double>(std::clock() - started) /
                   CLOCKS_PER_SEC;  // of all threads; the only thing that differs between equal runs
  out["stats"] = stats;
  out["partitions"] = r.partitions;
  out["stopped"] = r.stopped;
  out["end"] = r.end;
  out["skipped_share"] = r.skipped_share;
  out["skipped_time"] = r.skipped_time;
  out["skip_error"] = r.skip_error;
  out["delivered"] = array_of(std::move(r.delivered));
  out["acked"] = array_of(std::move(r.acked));
  out["link_data"] = array_of(std::move(r.link_data));
  out["link_control"] = array_of(std::move(r.link_control));
  out["link_peak"] = array_of(std::move(r.link_peak));
  out["link_paused"] = array_of(std::move(r.link_paused));
  const std::size_t times = r.sample_time.size(), links = o.sample_links.size(), pairs = o.sample_lanes.size();
  out["sample_time"] = array_of(std::move(r.sample_time));
  out["queue"] = array_of(std::move(r.queue), {links, times});
  out["sent"] = array_of(std::move(r.sent), {links, times});
  out["pauses"] = array_of(std::move(r.pauses), {links, times});
  out["rate"] = array_of(std::move(r.rate), {pairs, times});
  out["acknowledged"] = array_of(std::move(r.acknowledged), {pairs, times});
  out["cnps"] = array_of(std::move(r.cnps), {pairs, times});
  put_loads(out, std::move(r.loads));
  return out;
}

PlanTable table_of(const nb::dict& graph, const nb::dict& lanes, const Column<std::int64_t>& plan_start,
                   const Column<std::int64_t>& key, const Column<std::int32_t>& key_plan) {
  const GraphColumns columns(graph);
  const LaneColumns traffic(lanes);
  const wt::fabric::Graph g = columns.view();
  wt::fabric::validate(g);
  traffic.check_endpoints(g.endpoints());
  const wt::net::Lanes l = traffic.lanes();
  const wt::net::Paths p = traffic.paths();
  if (plan_start.size() == 0 || plan_start.data()[0] != 0 ||
      plan_start.data()[plan_start.size() - 1] != static_cast<std::int64_t>(l.src.size()))
    fail("packet network: plan_start must go from 0 to ", l.src.size());
  for (std::size_t i = 1; i < plan_start.size(); ++i)
    if (plan_start.data()[i] < plan_start.data()[i - 1]) fail("packet network: plan_start falls at row ", i);
  if (key.size() != key_plan.size()) fail("packet network: ", key.size(), " keys, ", key_plan.size(), " plans of keys");
  PlanTable t;
  t.node_kind = copy_of(g.node_kind), t.link_up = copy_of(g.link_up), t.node_site = copy_of(g.node_site),
  t.link_from = copy_of(g.link_from);
  t.link_to = copy_of(g.link_to), t.endpoint = copy_of(g.endpoint), t.nics = copy_of(g.nics), t.rail = copy_of(g.rail);
  t.link_rate = copy_of(g.link_rate), t.link_latency = copy_of(g.link_latency), t.link_axis = copy_of(g.link_axis),
  t.nic_start = copy_of(g.nic_start);
  t.path_start = copy_of(p.start), t.path_links = copy_of(p.links);
  t.src = copy_of(l.src), t.dst = copy_of(l.dst), t.path = copy_of(l.path), t.window = copy_of(l.window),
  t.group = copy_of(l.group);
  t.bytes = copy_of(l.bytes), t.slice = copy_of(l.slice), t.delay = copy_of(l.delay), t.rate = copy_of(l.rate),
  t.begin = copy_of(l.begin);
  t.dep_start = copy_of(l.dep_start), t.dep_lead = copy_of(l.dep_lead), t.dep_lane = copy_of(l.dep_lane);
  t.hold = copy_of(l.hold);
  t.plan_start = copy_of(span_of(plan_start)), t.key = copy_of(span_of(key)), t.key_plan = copy_of(span_of(key_plan));
  return t;
}

// Handles Ctrl-C and reports the progress of a network.
template <class Network>
std::function<void()> pulse_of(const Network& network, const nb::object& progress) {
  return [&network, progress] {
    check_signals();
    if (progress.is_none()) return;
    const nb::gil_scoped_acquire held;
    progress(network.done());
  };
}

void make_network(PacketNetwork* at, const nb::dict& graph, const nb::dict& lanes, const Column<std::int64_t>& plan_start,
                  const Column<std::int64_t>& key, const Column<std::int32_t>& key_plan, const nb::dict& options,
                  const nb::dict& faults, const nb::object& progress) {
  new (at) PacketNetwork(table_of(graph, lanes, plan_start, key, key_plan), options_of(options), faults_of(faults));
  at->on_pulse(pulse_of(*at, progress));
}

void make_replay(ReplayPackets* at, const nb::dict& graph, const nb::dict& lanes, const Column<std::int64_t>& plan_start,
                 const Column<std::int64_t>& key, const Column<std::int32_t>& key_plan, const nb::dict& options,
                 const nb::dict& faults, double tolerance, const nb::object& progress) {
  new (at) ReplayPackets(table_of(graph, lanes, plan_start, key, key_plan), options_of(options), faults_of(faults), {tolerance});
  at->on_pulse(pulse_of(*at, progress));
}

nb::dict plans_of(PlanReport&& r) {
  nb::dict out;
  out["stats"] = stats_of(r.stats);
  out["link_data"] = array_of(std::move(r.link_data));
  out["link_control"] = array_of(std::move(r.link_control));
  out["link_peak"] = array_of(std::move(r.link_peak));
  out["link_paused"] = array_of(std::move(r.link_paused));
  out["starts"] = array_of(std::move(r.starts));
  out["total"] = array_of(std::move(r.total));
  out["longest"] = array_of(std::move(r.longest));
  put_loads(out, std::move(r.loads));
  out["now"] = r.now;
  out["partitions"] = r.partitions;
  return out;
}

nb::dict report(const PacketNetwork& network) { return plans_of(network.report()); }

nb::dict report_replay(const ReplayPackets& network) {
  wt::net::replay::PacketReport r = network.report();
  nb::dict out = plans_of(std::move(r.step));
  const wt::net::replay::Report& of = r.replay;
  nb::dict replay;
  replay["episodes"] = of.episodes;
  replay["replayed"] = of.replayed;
  replay["joined"] = of.joined;
  replay["simulations"] = of.simulations;
  replay["patterns"] = of.patterns;
  replay["nodes"] = of.nodes;
  replay["launches"] = of.flows;
  replay["skipped_launches"] = of.skipped;
  replay["played_launches"] = of.played;
  replay["skipped_share"] = r.skipped_hops;
  replay["shifted_starts"] = of.shifted;
  replay["shift_total_s"] = of.shift_total;
  replay["shift_max_s"] = of.shift_max;
  replay["error_mean_s"] = of.error_mean;
  replay["error_max_s"] = of.error_max;
  replay["error_share"] = of.error_share;
  replay["error_total_s"] = of.error_total;
  replay["against_total_s"] = of.against_total;
  replay["checked"] = of.checked;
  replay["checked_mean_s"] = of.checked_mean;
  replay["checked_max_s"] = of.checked_max;
  replay["simulated"] = stats_of(r.simulated);
  out["replay"] = replay;
  return out;
}

}  // namespace

void bind_packet(nb::module_& m) {
  using namespace nb::literals;
  m.def("packet_run", &packet_run, "graph"_a, "lanes"_a, "options"_a, "faults"_a, "progress"_a.none() = nb::none(),
        "Runs lanes packet by packet; see windtunnel.engine.packet.");
  nb::class_<PacketNetwork, wt::net::Network>(m, "PacketNetwork",
                                              "The packet engine as a network of a program; one run uses it up.")
      .def("__init__", &make_network, nb::kw_only(), "graph"_a, "lanes"_a, column("plan_start"), column("key"), column("key_plan"),
           "options"_a, "faults"_a, "progress"_a.none() = nb::none())
      .def_prop_ro("ahead", &PacketNetwork::ahead,
                   "Seconds from a launch to its first packet, at least; 0: too little for threads.")
      .def("report", &report, "What has happened so far.");
  nb::class_<ReplayPackets, wt::net::Network>(m, "ReplayNetwork",
                                              "The same, simulating each pattern of transfers once; one run uses it up.")
      .def("__init__", &make_replay, nb::kw_only(), "graph"_a, "lanes"_a, column("plan_start"), column("key"), column("key_plan"),
           "options"_a, "faults"_a, "tolerance"_a, "progress"_a.none() = nb::none())
      .def_prop_ro("ahead", &ReplayPackets::ahead,
                   "Seconds from a launch to its first packet, at least; 0: too little for threads.")
      .def("report", &report_replay, "What has happened so far; of links and plans as if all had been simulated.");
}

}  // namespace wt::bind
