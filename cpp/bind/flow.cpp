// The flow engine, for Python.
#include <time.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "bind/columns.h"
#include "bind/network.h"
#include "bind/parts.h"
#include "net/flow/latency.h"
#include "net/flow/network.h"
#include "net/flow/run.h"

namespace wt::bind {

namespace {

using namespace wt::net::flow;

// Handles Ctrl-C while the core runs without the interpreter's lock.
void check_signals() {
  const nb::gil_scoped_acquire held;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// CPU seconds of this thread, only for the report of a run.
double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <class T>
std::vector<T> copy_of(const Column<T>& column) {
  return {column.data(), column.data() + column.size()};
}

void put_solver(nb::dict& to, const SolverStats& s) {
  to["solves"] = s.solves;
  to["incremental"] = s.incremental;
  to["full"] = s.full;
  to["abandoned"] = s.abandoned;
  to["fallbacks"] = s.fallbacks;
}

void put_use(nb::dict& to, LinkUse&& use) {
  to["link_bytes"] = array_of(std::move(use.bytes));
  to["link_busy"] = array_of(std::move(use.busy));
  to["link_full"] = array_of(std::move(use.full));
  if (use.row.empty()) return;
  const std::size_t bins = use.series.bins, rows = bins == 0 ? 0 : use.series.values.size() / bins;
  to["bin_width"] = use.series.width;
  to["bin_row"] = array_of(std::move(use.row));
  to["bin_bytes"] = array_of(std::move(use.series.values), {rows, bins});
}

nb::dict flow_run(const Column<double>& capacity, const Column<std::int64_t>& row_start, const Column<std::int32_t>& row_links,
                  const Column<double>& demand, const Column<std::int32_t>& row, const Column<double>& begin,
                  const Column<double>& size, const Column<double>& weight, const Column<double>& bound,
                  const Column<double>& latency, const Column<double>& delay, const Column<std::int64_t>& dep_start,
                  const Column<std::int32_t>& deps, const Column<double>& change_time, const Column<std::int32_t>& change_link,
                  const Column<double>& change_capacity, double tolerance, double memory, bool bins, const nb::object& progress) {
  Options options{tolerance, memory, bins, [&](double share) {
                    check_signals();
                    if (progress.is_none()) return;
                    const nb::gil_scoped_acquire held;
                    progress(share);
                  }};
  Outcome out;
  const double began = cpu_seconds();
  {
    const nb::gil_scoped_release released;
    out = wt::net::flow::run(span_of(capacity), Demands{span_of(row_start), span_of(row_links), span_of(demand)},
                             Variables{span_of(row), span_of(begin), span_of(size), span_of(weight), span_of(bound),
                                       span_of(latency), span_of(delay), span_of(dep_start), span_of(deps)},
                             Changes{span_of(change_time), span_of(change_link), span_of(change_capacity)}, options);
  }
  nb::dict answer;
  answer["start"] = array_of(std::move(out.start));
  answer["end"] = array_of(std::move(out.end));
  put_use(answer, std::move(out.use));
  answer["cpu_s"] = cpu_seconds() - began;
  answer["last"] = out.last;
  answer["events"] = out.events;
  answer["unknowns"] = out.unknowns;
  answer["constraints"] = out.constraints;
  put_solver(answer, out.solver);
  return answer;
}

nb::tuple flow_latency(const Column<std::int64_t>& row_start, const Column<std::int32_t>& row_links, const Column<double>& wait,
                       const Column<double>& rate, const Column<double>& size, double mtu, double ack) {
  Latency out;
  {
    const nb::gil_scoped_release released;
    out = latency(Demands{span_of(row_start), span_of(row_links), {}}, span_of(wait), span_of(rate), span_of(size), mtu, ack);
  }
  return nb::make_tuple(array_of(std::move(out.there)), array_of(std::move(out.back)));
}

void make_network(FlowNetwork* at, const Column<double>& capacity, const Column<std::int64_t>& row_start,
                  const Column<std::int32_t>& row_links, const Column<double>& demand, const Column<std::int64_t>& plan_start,
                  const Column<double>& size, const Column<double>& weight, const Column<double>& bound,
                  const Column<double>& latency, const Column<double>& delay, const Column<std::int64_t>& key,
                  const Column<std::int32_t>& key_plan, const Column<double>& change_time, const Column<std::int32_t>& change_link,
                  const Column<double>& change_capacity, const Column<double>& epochs, double tolerance, bool bins) {
  PlanTable table{copy_of(capacity), copy_of(row_start), copy_of(row_links),   copy_of(demand),      copy_of(plan_start),
                  copy_of(size),     copy_of(weight),    copy_of(bound),       copy_of(latency),     copy_of(delay),
                  copy_of(key),      copy_of(key_plan),  copy_of(change_time), copy_of(change_link), copy_of(change_capacity),
                  copy_of(epochs)};
  new (at) FlowNetwork(std::move(table), tolerance, bins);
  at->on_pulse(check_signals);
}

nb::dict report(FlowNetwork& network) {
  PlanReport out = network.report();
  nb::dict answer;
  put_use(answer, std::move(out.use));
  answer["starts"] = array_of(std::move(out.starts));
  answer["total"] = array_of(std::move(out.total));
  answer["longest"] = array_of(std::move(out.longest));
  answer["alone"] = array_of(std::move(out.alone));
  answer["now"] = out.now;
  answer["events"] = out.events;
  answer["unknowns"] = out.unknowns;
  answer["constraints"] = out.constraints;
  answer["active_constraints"] = out.active_constraints;
  put_solver(answer, out.solver);
  return answer;
}

}  // namespace

void bind_flow(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("flow_run", &flow_run, nb::kw_only(), column("capacity"), column("row_start"), column("row_links"), column("demand"),
        column("row"), column("begin"), column("size"), column("weight"), column("bound"), column("latency"), column("delay"),
        column("dep_start"), column("deps"), column("change_time"), column("change_link"), column("change_capacity"), "tolerance"_a,
        "memory"_a, "bins"_a, "progress"_a.none(), "Runs variables over links; see windtunnel.engine.flow.run.");
  m.def("flow_latency", &flow_latency, nb::kw_only(), column("row_start"), column("row_links"), column("wait"), column("rate"),
        column("size"), "mtu"_a, "ack"_a, "Seconds beside bytes over rate; see windtunnel.engine.flow.latency.");
  nb::class_<FlowNetwork, wt::net::Network>(m, "FlowNetwork", "Plans over shared links; see windtunnel.engine.flow.network.")
      .def("__init__", &make_network, nb::kw_only(), column("capacity"), column("row_start"), column("row_links"), column("demand"),
           column("plan_start"), column("size"), column("weight"), column("bound"), column("latency"), column("delay"),
           column("key"), column("key_plan"), column("change_time"), column("change_link"), column("change_capacity"),
           column("epochs"), "tolerance"_a, "bins"_a)
      .def("report", &report, "What the links carried and how long plans took, up to now.");
}

}  // namespace wt::bind
